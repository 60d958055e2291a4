// Statistics of positions as journals have them.
#include <utility>

#include "eval/report/field_reader.h"
#include "eval/texts/distribution_statistics.h"

namespace kakeya::eval {

Report distribution_json(const DistributionStatistics& statistics) {
  const DistributionSums& sums = statistics.sums();
  return {{"divergences", sums.divergences},
          {"reference_nll", sums.reference_nll},
          {"nll", sums.nll},
          {"same_tops", sums.same_tops}};
}

Result<DistributionStatistics> parse_distribution(const Report& json) {
  DistributionSums sums;
  KAKEYA_TRY(FieldReader(json)
                 .take("divergences", sums.divergences)
                 .take("reference_nll", sums.reference_nll)
                 .take("nll", sums.nll)
                 .take("same_tops", sums.same_tops)
                 .status("divergences of positions"));
  return DistributionStatistics(std::move(sums));
}

}  // namespace kakeya::eval
