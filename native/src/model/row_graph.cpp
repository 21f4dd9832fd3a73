#include "model/row_graph.h"

#include "model/hidden_rows.h"

namespace pilotfish {

RowGraph::RowGraph(const Head& head, std::string_view role, const std::vector<Port>& inputs,
                   const std::vector<Port>& outputs, int32_t max_rows, int32_t inner_rows)
    : session_(head.open_session(role, {.max_rows = max_rows * inner_rows, .max_blocks = 1, .block_size = 1})) {
  for (const Port& port : inputs) ports_.emplace_back(*session_, port.name, RowPort::Kind::kInput, port.rows);
  for (const Port& port : outputs) ports_.emplace_back(*session_, port.name, RowPort::Kind::kOutput, port.rows);
  for (const std::vector<Port>* const each : {&inputs, &outputs}) {
    for (const Port& port : *each) parts_.push_back(port.part);
  }
  const std::shared_ptr<CudaDevice>& device = session_->device();
  run(device ? max_rows : 1);  // on a device with the memory of the widest pass
  if (device) device->synchronize();
}

void RowGraph::run(int32_t num_rows) {
  for (size_t i = 0; i < ports_.size(); ++i) ports_[i].bind(num_rows, parts_[i] * num_rows);
  session_->run({.num_rows = num_rows});
}

std::vector<RowGraph::Port> stream_ports(const HeadEntry& entry, const FloatRows& streams) {
  std::vector<RowGraph::Port> ports;
  for (size_t i = 0; i < entry.taps.size(); ++i) {
    ports.emplace_back(stream_name(entry.taps[i]), RowPort::Rows::of(streams, static_cast<int32_t>(i)));
  }
  return ports;
}

}  // namespace pilotfish
