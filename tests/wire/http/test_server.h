// A service and its server of HTTP on a free port, as `kakeya serve` starts them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "service/service.h"
#include "wire/anthropic/routes.h"
#include "wire/http/http_server.h"
#include "wire/lm_studio/routes.h"
#include "wire/ollama/routes.h"
#include "wire/openai/routes.h"
#include "wire/sessions/routes.h"

namespace kakeya::test {

class TestServer {
 public:
  // With another scheduler than the engine's, if one is given. The engine must outlive it.
  TestServer(Engine& engine,
             service::ServiceOptions service,
             wire::HttpOptions http = {},
             std::unique_ptr<Scheduler> scheduler = nullptr) {
    service.model_name = "demo";
    http.port = 0;
    service_ = scheduler ? service::Service::create(engine, service,
                                                    service::ServerState::open(service).value(),
                                                    std::move(scheduler))
                               .value()
                         : service::Service::create(engine, service).value();
    const wire::Dialect openai = openai::dialect();
    http_ = wire::HttpServer::start(
                *service_, http,
                {openai, anthropic::dialect(), lm_studio::dialect(openai.error_body),
                 ollama::dialect(), sessions::dialect(openai.error_body)})
                .value();
  }

  service::Service& service() { return *service_; }
  wire::HttpServer& http() { return *http_; }
  std::uint16_t port() const { return http_->port(); }
  SchedulerStatistics statistics() const { return service_->driver().statistics(); }

 private:
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<wire::HttpServer> http_;
};

}  // namespace kakeya::test
