// Names of replicas in the ids of what a server keeps, by which a balancer finds who keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::service {

inline constexpr std::size_t kMostReplicaNameBytes = 48;

// Checks a name, which stands in ids and with them in paths. Errors: kInvalidArgument for what is
// not 1 to 48 characters of a-z, 0-9 and '-'.
Status check_replica_name(std::string_view name);

// Makes the name of a replica that was given none, of its host's name and its port. 0: it has none
// that others know, and gets random digits instead.
std::string replica_name_of(std::string_view host, std::uint16_t port);
// As above, on this host.
std::string default_replica_name(std::uint16_t port);

// Makes what ids begin with whose replica has this name, behind which random_id() puts its digits:
// "resp_NAME_"; without a name `prefix` alone.
std::string id_prefix_of(std::string_view prefix, std::string_view name);

// Finds the replica that an id of a response or session names; empty: none, as in ids that clients
// or earlier versions made.
std::string_view replica_of(std::string_view id);

// Says who made what has this id, behind a sentence that it is not here: ", made by replica
// 'NAME'"; empty: the id does not tell.
std::string made_by(std::string_view id);

}  // namespace kakeya::service
