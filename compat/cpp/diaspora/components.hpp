/*
 * Validators, partition selectors and serializers that a topic is made with.
 *
 * Those of Diaspora's own kinds are Thalweg's, so that programs in every
 * language keep to them. Those of a program's own run here, in each program that
 * has this driver and can load them; what they are is kept in the topic's
 * definition, as an annotation of its JSON Schema. Metadata of such topics
 * travels as JSON all the same: a serializer of a program's own is told of again,
 * and not called.
 */
#ifndef THALWEG_DIASPORA_COMPONENTS_HPP
#define THALWEG_DIASPORA_COMPONENTS_HPP

#include <diaspora/PartitionSelector.hpp>
#include <diaspora/Serializer.hpp>
#include <diaspora/Validator.hpp>

#include <nlohmann/json.hpp>

#include <memory>

namespace thalweg_diaspora {

/* A program's own; none where Thalweg has it. */
struct Own {
    std::shared_ptr<diaspora::ValidatorInterface> validator;
    std::shared_ptr<diaspora::PartitionSelectorInterface> selector;
    std::shared_ptr<diaspora::SerializerInterface> serializer;
};

/* What a topic was asked to be made with. */
class Components {
public:
    Components(std::shared_ptr<diaspora::ValidatorInterface> validator,
               std::shared_ptr<diaspora::PartitionSelectorInterface> selector,
               std::shared_ptr<diaspora::SerializerInterface> serializer);

    /* Their part of the topic's definition. */
    nlohmann::json definition() const;
    const Own &own() const { return own_; }

private:
    nlohmann::json validator_, selector_, serializer_;
    Own own_;
};

/* The components of a topic, as programs know them, from its definition. */
nlohmann::json described_components(const nlohmann::json &definition);

/*
 * The program's own components of a topic that somebody else made. Throws what
 * loading them does.
 */
Own restored(const nlohmann::json &definition);

} // namespace thalweg_diaspora

#endif
