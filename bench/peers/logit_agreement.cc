#include "logit_agreement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/mapped_file.h"
#include "base/status.h"

namespace kakeya::peers {

namespace {

// log(sum(exp(values)))
double log_sum(std::span<const float> values) {
  const double most = *std::max_element(values.begin(), values.end());
  double sum = 0.0;
  for (const float value : values) sum += std::exp(static_cast<double>(value) - most);
  return most + std::log(sum);
}

// Ties: the lowest.
std::int32_t best_token(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class LogitFile {
 public:
  static Result<LogitFile> open(const std::string& path, std::int64_t columns) {
    KAKEYA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * sizeof(float);
    if (file.bytes().empty() || file.bytes().size() % row_bytes != 0) {
      return invalid_argument("{}: expected rows of {} bytes, got {} bytes", path, row_bytes,
                              file.bytes().size());
    }
    return LogitFile(std::move(file), columns, row_bytes);
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(file_.bytes().size() / row_bytes_); }

  // Errors: kDataLoss.
  Result<std::vector<float>> row(std::int64_t index) const {
    std::vector<float> values(static_cast<std::size_t>(columns_));
    std::memcpy(values.data(), file_.bytes().data() + static_cast<std::size_t>(index) * row_bytes_,
                row_bytes_);
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return values;
    return data_loss("{}: row {}, column {} is not finite", file_.path(), index,
                     bad - values.begin());
  }

 private:
  LogitFile(MappedFile file, std::int64_t columns, std::size_t row_bytes)
      : file_(std::move(file)), columns_(columns), row_bytes_(row_bytes) {}

  MappedFile file_;
  std::int64_t columns_;
  std::size_t row_bytes_;
};

}  // namespace

double divergence(std::span<const float> reference, std::span<const float> other) {
  const double reference_sum = log_sum(reference);
  const double other_sum = log_sum(other);
  double total = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_sum;
    const double log_q = static_cast<double>(other[i]) - other_sum;
    total += std::exp(log_p) * (log_p - log_q);
  }
  return total;
}

Result<LogitAgreement> compare_logits(const std::string& reference,
                                      const std::string& other,
                                      std::int64_t columns) {
  if (columns <= 0) return invalid_argument("columns: expected at least 1, got {}", columns);
  KAKEYA_ASSIGN_OR_RETURN(const LogitFile first, LogitFile::open(reference, columns));
  KAKEYA_ASSIGN_OR_RETURN(const LogitFile second, LogitFile::open(other, columns));
  if (first.rows() != second.rows()) {
    return invalid_argument("{}: expected {} rows as in {}, got {}", other, first.rows(), reference,
                            second.rows());
  }
  LogitAgreement agreement;
  agreement.rows = first.rows();
  for (std::int64_t i = 0; i < first.rows(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> p, first.row(i));
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> q, second.row(i));
    const std::int32_t best = best_token(q);
    if (best_token(p) == best) ++agreement.same_top;
    agreement.best.push_back(best);
    const double distance = divergence(p, q);
    agreement.divergences.push_back(distance);
    agreement.mean_divergence += distance / static_cast<double>(first.rows());
    agreement.largest_divergence = std::max(agreement.largest_divergence, distance);
  }
  return agreement;
}

}  // namespace kakeya::peers
