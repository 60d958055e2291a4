// Routes of whoever runs the server, which belong to no dialect: health, metrics, the page.
#pragma once

#include <span>

#include "wire/http/page.h"
#include "wire/http/routes.h"

namespace kakeya::wire {

// GET /health, /readyz, /livez and /metrics.
std::span<const Route> operator_routes();

// Sends a file of the page.
bool serve_page(Exchange& exchange, const PageFile& page);

}  // namespace kakeya::wire
