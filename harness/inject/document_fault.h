// Faults of the documents that a scenario means. Engine and oracle are given the same wrong ones,
// so only a judge that counts documents itself can tell.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/inject/fault_table.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

std::span<const FaultRow> document_fault_rows();  // Sorted by name.
std::vector<std::string> document_faults();

// Opens the scenario's documents, wrong ones while a fault of documents is planted.
std::unique_ptr<DataSource> open_planted_data(const Scenario& scenario);

}  // namespace lockstep
