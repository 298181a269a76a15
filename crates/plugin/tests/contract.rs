//! Plugins that break the contract: each gets an error that says how.

mod cc;

use cc::{compile, loader, named};
use plugin::Loader;
use topic::{Plugins, SelectorInput};

fn refusal<T>(made: Result<T, topic::PluginError>) -> String {
    made.err().expect("a refusal").to_string()
}

#[test]
fn a_plugin_that_is_nowhere_is_named_with_where_it_was_looked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display();
    let loader = Loader::new([directory.path().to_owned(), "/nonexistent".into()]);
    let plugin = named("energy:libthalweg_nowhere.so", "{}");
    let text = refusal(loader.validator(&plugin));
    let begins = format!(
        "plugin \"energy:libthalweg_nowhere.so\": it is not in {path}:/nonexistent, and the \
         system does not find it: libthalweg_nowhere.so: "
    );
    assert!(text.starts_with(&begins), "{text}");
    let text = refusal(Loader::new([]).serializer(&plugin));
    assert!(
        text.contains("THALWEG_PLUGIN_PATH names no directories"),
        "{text}"
    );
    // What is found first is what counts, even if it is no library.
    std::fs::write(directory.path().join("libthalweg_nowhere.so"), b"nonsense").unwrap();
    let text = refusal(loader.partition_selector(&plugin));
    assert!(text.contains("it can't be loaded: "), "{text}");
    let text = refusal(loader.validator(&named("my.module:Energy", "{}")));
    assert!(text.contains("an object of Python"), "{text}");
    let text = refusal(loader.validator(&named("a b:lib.so", "{}")));
    assert!(text.contains("\"a b\" is no name in C"), "{text}");
}

#[test]
fn bad_tables_are_refused() {
    let (directory, loader) = loader("crates/plugin/tests/fixtures/bad.c", "libbad.so");
    let place = directory.path().join("libbad.so").display().to_string();
    for (name, reason) in [
        (
            "missing",
            "there is no thalweg_plugin_missing; is it exported, with THALWEG_EXPORT_PLUGIN, as \
             \"missing\"?",
        ),
        ("nothing", "thalweg_plugin_nothing returns no table"),
        (
            "other_version",
            "\"other_version\" was built for version 2 of plugin.h; this client has version 1",
        ),
        (
            "other_size",
            "the table of \"other_size\" has 8 bytes, expected 56",
        ),
        ("much", "\"much\" is no validator"),
        ("no_create", "\"no_create\" has no create"),
        ("refuses", "options {\"a\":1} are refused: not today"),
    ] {
        let name = format!("{name}:libbad.so");
        assert_eq!(
            refusal(loader.validator(&named(&name, "{\"a\": 1}"))),
            format!("plugin {name:?}: in {place}: {reason}")
        );
    }
    // A serializer that only goes one way is none.
    let text = refusal(loader.serializer(&named("half:libbad.so", "{}")));
    assert!(text.ends_with("\"half\" is no serializer"), "{text}");
}

#[test]
fn bad_answers_are_told_and_nothing_is_overrun() {
    let (_directory, loader) = loader("crates/plugin/tests/fixtures/bad.c", "libbad.so");
    let odd = named("odd:libbad.so", "{}");
    let error = loader.validator(&odd).unwrap().validate(b"x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "metadata is refused: plugin \"odd:libbad.so\" failed: it returned 77, which means nothing"
    );
    let fails = loader.validator(&named("fails:libbad.so", "{}")).unwrap();
    assert_eq!(
        fails.validate(b"x").unwrap_err().to_string(),
        "metadata is refused: plugin \"fails:libbad.so\" failed: it hurts"
    );
    // Through the kind, as clients do: no partition is one out of range.
    let kind = topic::SelectorKind::Plugin(odd);
    let mut selector = kind.build(&loader, 0).unwrap();
    let error = selector.select(SelectorInput::default(), 3).unwrap_err();
    assert!(
        error.to_string().contains("chose partition 4294967295"),
        "{error}"
    );

    let much = loader.serializer(&named("much:libbad.so", "{}")).unwrap();
    let mut out = b"before".to_vec();
    much.serialize(b"4", &mut out).unwrap();
    assert_eq!(out.len(), 6 + (64 << 20));
    out.truncate(6);
    let error = much.serialize(b"5", &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "plugin \"much:libbad.so\" failed: it wrote more than 67108864 bytes for 1"
    );
    assert_eq!(out, b"before");
    let error = much.deserialize(b"77").unwrap_err();
    assert_eq!(
        error.to_string(),
        "plugin \"much:libbad.so\" failed: it appended from a null pointer"
    );
    let reluctant = loader.serializer(&named("reluctant:libbad.so", "{}"));
    let error = reluctant.unwrap().serialize(b"x", &mut out).unwrap_err();
    assert_eq!(error.to_string(), "metadata is refused: no");
    assert_eq!(out, b"before");
}

#[test]
fn exceptions_stay_inside() {
    let (_directory, loader) = loader("crates/plugin/tests/fixtures/throws.cpp", "libthrows.so");
    let plugin = named("throws:libthrows.so", "{}");
    let failed = "plugin \"throws:libthrows.so\" failed";
    let validator = loader.validator(&plugin).unwrap();
    let text = |metadata: &[u8]| validator.validate(metadata).unwrap_err().to_string();
    assert_eq!(text(b"bad"), "metadata is refused: it is bad");
    assert_eq!(
        text(b""),
        format!("metadata is refused: {failed}: validate threw")
    );
    let mut selector = loader.partition_selector(&plugin).unwrap();
    let keyed = SelectorInput {
        key: Some(b"12"),
        ..SelectorInput::default()
    };
    assert_eq!(selector.select(keyed, 3), Ok(2));
    let error = selector.select(SelectorInput::default(), 3).unwrap_err();
    assert!(
        error.to_string().ends_with("failed: select threw"),
        "{error}"
    );
    let serializer = loader.serializer(&plugin).unwrap();
    let mut out = Vec::new();
    let error = serializer.serialize(b"", &mut out).unwrap_err();
    assert!(error.to_string().contains("it wrote more than"), "{error}");
    let error = serializer.deserialize(b"").unwrap_err();
    let thrown = format!("{failed}: an exception that is no std::exception");
    assert_eq!(error.to_string(), thrown);
    let text = refusal(loader.validator(&named("throws:libthrows.so", "{\"a\": 1}")));
    assert!(
        text.ends_with("are refused: an exception that is no std::exception"),
        "{text}"
    );
}

#[test]
fn the_header_is_what_rust_has() {
    let directory = tempfile::tempdir().unwrap();
    let source = "crates/plugin/tests/fixtures/layout.c";
    compile(source, &directory.path().join("liblayout.so"));
}
