#include "engine/train/step_model.h"

#include "engine/nn/model.h"
#include "kernels/core/at.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

template <class T>
class TypedStepModel final : public StepModel {
 public:
  TypedStepModel(Device& device, const Stream& compute, const Offloaders& offloaders,
                 SharedMemory* shared, const Parameters& parameters, const Scenario& scenario,
                 const std::vector<Chunk>& chunks, int ranks, Communicator* experts)
      : model_(device, compute, offloaders, shared, parameters, scenario, chunks, ranks, experts) {}

  int slots() const override { return model_.slots(); }
  const PackShape& pack_shape() const override { return model_.pack_shape(); }
  const PackedBatch& pack(int slot, int bucket, std::int64_t overflow_capacity) override {
    return model_.pack(slot, bucket, overflow_capacity);
  }
  Tensor<std::uint8_t> workspace() const override { return model_.workspace(); }
  const CodeScratch& codes() const override { return model_.codes(); }
  const std::vector<ExpertState>& expert_states() const override { return model_.expert_states(); }
  std::vector<NamedTensor>& activations(int slot) override { return model_.slot(slot).names; }
  Tensor<float> router_losses(int slot, int layer) override {
    return at(model_.slot(slot).layers, layer)->losses;
  }
  std::int64_t rows_in_use(int slot, int layer) override {
    return at(model_.slot(slot).layers, layer)->rows_in_use;
  }
  void append_addresses(std::vector<const void*>& table) const override {
    model_.append_addresses(table);
  }

  void initialize(const Stream& stream) const override { model_.initialize(stream); }
  void poison(int slot) override { model_.poison(model_.slot(slot)); }
  void embed(const PassContext& context, const MicrobatchInputs& inputs, int slot) override {
    model_.embed(context, inputs, model_.slot(slot));
  }
  void forward(const PassContext& context, const Part& part, int slot) override {
    model_.forward(context, part, model_.slot(slot));
  }
  void head(const PassContext& context, const MicrobatchInputs& inputs, int slot,
            Tensor<float> loss) override {
    model_.head(context, inputs, model_.slot(slot), loss);
  }
  void head_backward(const PassContext& context, const MicrobatchInputs& inputs,
                     int slot) override {
    model_.head_backward(context, inputs, model_.slot(slot));
  }
  void backward(const PassContext& context, const Part& part, int slot) override {
    model_.backward(context, part, model_.slot(slot));
  }
  void embed_backward(const PassContext& context, const MicrobatchInputs& inputs,
                      int slot) override {
    model_.embed_backward(context, inputs, model_.slot(slot));
  }

  void hand_on(const PassContext& context, int from, int to) override {
    model_.hand_on(context, model_.slot(from), model_.slot(to));
  }
  void hand_back(const PassContext& context, int from, int to) override {
    model_.hand_back(context, model_.slot(from), model_.slot(to));
  }
  void keep_head_gradient(const PassContext& context, int slot) override {
    model_.keep_head_gradient(context, model_.slot(slot));
  }
  void take_head_gradient(const PassContext& context, int slot) override {
    model_.take_head_gradient(context, model_.slot(slot));
  }

  MemoryRange output(int slot) override { return range_of(model_.output(model_.slot(slot))); }
  MemoryRange input(int slot) override { return range_of(model_.slot(slot).input); }
  MemoryRange output_gradient(int slot) override {
    return range_of(model_.slot(slot).output_gradient);
  }
  MemoryRange head_gradient(int slot) override { return range_of(model_.slot(slot).head_gradient); }
  MemoryRange hold_gradient(const PassContext& context, int slot, int microbatch) override {
    return range_of(model_.hold_gradient(context, model_.slot(slot), microbatch));
  }
  bool sends_head_gradients() const override { return model_.sends_head_gradients(); }
  MemoryRange hold_head_gradient(const PassContext& context, int microbatch) override {
    return range_of(model_.hold_head_gradient(context, microbatch));
  }

  void fill_input(const Stream& stream, const Segment& region, int slot,
                  const Ones& ones) override {
    model_.fill_input(stream, region, model_.slot(slot), ones);
  }
  void fill_gradients(const Stream& stream, const Segment& region, int slot,
                      const Ones& ones) override {
    model_.fill_gradients(stream, region, model_.slot(slot), ones);
  }
  void poison_gradients() const override { model_.poison_gradients(); }
  std::int64_t most_filled() const override { return model_.most_filled(); }

 private:
  Model<T> model_;
};

}  // namespace

std::unique_ptr<StepModel> make_step_model(Device& device, const Stream& compute,
                                           const Offloaders& offloaders, SharedMemory* shared,
                                           const Parameters& parameters, const Scenario& scenario,
                                           const std::vector<Chunk>& chunks, int ranks,
                                           Communicator* experts) {
  if (stores_bf16(scenario)) {
    return std::make_unique<TypedStepModel<bf16>>(device, compute, offloaders, shared, parameters,
                                                  scenario, chunks, ranks, experts);
  }
  return std::make_unique<TypedStepModel<float>>(device, compute, offloaders, shared, parameters,
                                                 scenario, chunks, ranks, experts);
}

}  // namespace lockstep
