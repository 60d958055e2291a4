// The list of all kinds of reports. The function of a kind stands in the folder of its evaluation,
// at the end of its rules.
#pragma once

#include "eval/report/report_kind.h"

namespace kakeya::eval {

const ReportKind& speculation_report();
const ReportKind& keys_and_values_report();
const ReportKind& perplexity_report();
const ReportKind& divergence_report();
const ReportKind& drafter_parity_report();
const ReportKind& overlap_report();
const ReportKind& niah_report();
const ReportKind& served_niah_report();
const ReportKind& bounded_report();
const ReportKind& task_report();
const ReportKind& served_task_report();
const ReportKind& longrun_report();
const ReportKind& multitenant_report();
const ReportKind& decode_report();
const ReportKind& prefill_report();
const ReportKind& verify_report();
const ReportKind& operations_report();
const ReportKind& kernels_report();
const ReportKind& batch_report();
const ReportKind& peers_report();
const ReportKind& peer_perplexity_report();
const ReportKind& servers_report();

inline constexpr const ReportKind& (*kReportKinds[])() = {
    speculation_report,      // kakeya.eval.spec
    keys_and_values_report,  // kakeya.eval.kv
    perplexity_report,       // kakeya.eval.perplexity
    divergence_report,       // kakeya.eval.kl
    drafter_parity_report,   // kakeya.eval.drafter-parity
    overlap_report,          // kakeya.eval.overlap
    niah_report,             // kakeya.eval.niah
    served_niah_report,      // kakeya.eval.served-niah
    bounded_report,          // kakeya.eval.bounded
    task_report,             // kakeya.eval.task
    served_task_report,      // kakeya.eval.served-task
    longrun_report,          // kakeya.longrun
    multitenant_report,      // kakeya.multitenant
    decode_report,           // kakeya.bench.decode
    prefill_report,          // kakeya.bench.prefill
    verify_report,           // kakeya.bench.verify
    operations_report,       // kakeya.bench.operations
    kernels_report,          // kakeya.bench.kernels
    batch_report,            // kakeya.bench.batch
    peers_report,            // kakeya.peers
    peer_perplexity_report,  // kakeya.peers.perplexity
    servers_report,          // kakeya.servers
};

}  // namespace kakeya::eval
