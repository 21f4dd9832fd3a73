// A graph of a head whose inputs and outputs have as many rows as tokens go through it. The memory is its callers'.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/head.h"
#include "model/row_port.h"

namespace pilotfish {

class RowGraph {
 public:
  struct Port {
    std::string name;
    RowPort::Rows rows;
    int32_t part = 0;  // of rows that several ports have one after the other: as many each as the run

    Port(std::string name, const RowPort::Rows& rows, int32_t part = 0)
        : name(std::move(name)), rows(rows), part(part) {}
    Port(std::string name, const FloatRows& rows) : Port(std::move(name), RowPort::Rows::of(rows)) {}
  };

  // A graph that is not what the ports say fails here: a pass is run through it. All rows outlive it. A value inside
  // the graph has at most `inner_rows` rows for each row of the inputs.
  RowGraph(const Head& head, std::string_view role, const std::vector<Port>& inputs, const std::vector<Port>& outputs,
           int32_t max_rows, int32_t inner_rows = 1);
  RowGraph(RowGraph&&) = default;

  // Runs the first num_rows rows of the inputs; on a device without waiting.
  void run(int32_t num_rows);

 private:
  std::unique_ptr<Session> session_;
  std::vector<RowPort> ports_;
  std::vector<int32_t> parts_;  // of each
};

// What a head's first graph reads of its target: a port each of its taps, whose rows are the parts of `streams`.
std::vector<RowGraph::Port> stream_ports(const HeadEntry& entry, const FloatRows& streams);

}  // namespace pilotfish
