#ifndef MOFKA_METADATA_HPP
#define MOFKA_METADATA_HPP

#include <mofka/Exception.hpp>
#include <mofka/Json.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace mofka {

/*
 * An event's metadata, as text and as JSON, each made from the other when it is
 * asked for. A shared handle: copies stand for the same, so that references to
 * what is in it live as long as the event. One thread at a time may use it.
 */
class Metadata {
public:
    Metadata(std::string json = "{}", bool validate = false)
        : self_(std::make_shared<Held>())
    {
        self_->text = std::move(json);
        if (validate && !isValidJson())
            throw Exception("String provided to Metadata constructor is not valid JSON");
    }
    Metadata(std::string_view json, bool validate = false) : Metadata(std::string(json), validate)
    {
    }
    Metadata(const char *json, bool validate = false) : Metadata(std::string(json), validate) {}
    Metadata(nlohmann::json json) : self_(std::make_shared<Held>())
    {
        self_->json = std::move(json);
        self_->has_text = false;
        self_->has_json = true;
    }

    operator bool() const noexcept { return static_cast<bool>(self_); }

    bool isValidJson() const { return self_->has_json || nlohmann::json::accept(self_->text); }

    /* The metadata as JSON. What is changed in it is seen by string(). */
    nlohmann::json &json()
    {
        parse();
        self_->has_text = false;
        return self_->json;
    }
    const nlohmann::json &json() const
    {
        parse();
        return self_->json;
    }

    /* The metadata as text. What is changed in it is seen by json(). */
    std::string &string()
    {
        write();
        self_->has_json = false;
        return self_->text;
    }
    const std::string &string() const
    {
        write();
        return self_->text;
    }

private:
    struct Held {
        std::string text;
        nlohmann::json json;
        bool has_text = true;
        bool has_json = false;
    };

    void parse() const
    {
        if (self_->has_json)
            return;
        try {
            self_->json = nlohmann::json::parse(self_->text);
        } catch (const std::exception &error) {
            throw Exception(std::string("Could not parse Metadata string: ") + error.what());
        }
        self_->has_json = true;
    }

    void write() const
    {
        if (self_->has_text)
            return;
        self_->text = self_->json.dump();
        self_->has_text = true;
    }

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
