//! That `include/thalweg/thalweg.h`, with what it includes, and `steps.h` say what is here.

use crate::boundary::{ThalwegBytes, ThalwegEventId};
use crate::callbacks::{ThalwegBuffer, ThalwegDataCallbacks};
use crate::error::{Code, ThalwegError};
use crate::event::{ThalwegEventInfo, ThalwegHeader};
use crate::group::ThalwegGroupCallbacks;
use crate::message::ThalwegMessage;
use crate::step_attributes::ThalwegStepAttribute;
use crate::step_reader::ThalwegStepNext;
use crate::step_stream::ThalwegStepRunInfo;
use crate::step_view::{
    ThalwegStepBlockInfo, ThalwegStepGet, ThalwegStepInfo, ThalwegStepVariable,
};
use crate::step_writer::{ThalwegStepBlock, ThalwegStepClosed, ThalwegStepEnded};
use crate::view::ThalwegSegment;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a C compiler takes `program` behind the header.
fn compile(name: &str, program: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}-{}.c", std::process::id()));
    std::fs::write(
        &path,
        format!("#include <thalweg/thalweg.h>\n#include <thalweg/steps.h>\n{program}"),
    )
    .unwrap();
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ])
        .arg(root().join("include"))
        .arg(&path)
        .output()
        .expect("a C compiler is there, for Rust links with it");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}\nof:\n{program}");
    std::fs::remove_file(&path).unwrap();
}

macro_rules! layout {
    ($text:ident, $c:literal, $rust:ty: $($field:ident),+ $(,)?) => {
        let size = size_of::<$rust>();
        writeln!($text, "_Static_assert(sizeof({}) == {size}, \"size\");", $c).unwrap();
        $(writeln!(
            $text,
            "_Static_assert(offsetof({}, {}) == {}, \"place\");",
            $c, stringify!($field), offset_of!($rust, $field),
        ).unwrap();)+
    };
}

#[test]
fn structs_have_the_layout_of_the_header() {
    let mut text = String::new();
    layout!(text, "thalweg_error", ThalwegError: code, retryable, retry_after_ms, reserved, message);
    layout!(text, "thalweg_bytes", ThalwegBytes: base, size);
    layout!(text, "thalweg_event_id", ThalwegEventId: partition, reserved, incarnation, offset);
    layout!(text, "thalweg_header", ThalwegHeader: name, value);
    layout!(text, "thalweg_segment", ThalwegSegment: offset, bytes);
    layout!(text, "thalweg_buffer", ThalwegBuffer: base, size, owner);
    layout!(text, "thalweg_data_callbacks", ThalwegDataCallbacks:
        select, allocate, release, destroy, context);
    layout!(text, "thalweg_group_callbacks", ThalwegGroupCallbacks:
        assigned, revoking, lost, destroy, context);
    layout!(text, "thalweg_message", ThalwegMessage:
        metadata, key, data, data_count, headers, header_count, producer_time_ns, partition,
        has_partition, tombstone, borrow, release, release_context);
    layout!(text, "thalweg_event_info", ThalwegEventInfo:
        id, metadata, key, data, data_owner, data_bytes_total, append_time_ns, producer_time_ns,
        tombstone, reserved);
    layout!(text, "thalweg_step_run_info", ThalwegStepRunInfo:
        run, writer, reason, first, last, step_count, discarded, bytes, first_time_ns,
        last_time_ns, ranks, state, distribution, reserved32, reserved);
    layout!(text, "thalweg_step_block", ThalwegStepBlock:
        name, dtype, kind, flags, ndim, joined, shape, start, count, data, strides, reserved);
    layout!(text, "thalweg_step_closed", ThalwegStepClosed: state, reserved, behind);
    layout!(text, "thalweg_step_ended", ThalwegStepEnded: step, reached, discarded, reason);
    layout!(text, "thalweg_step_next", ThalwegStepNext: state, reserved, run, reason);
    layout!(text, "thalweg_step_info", ThalwegStepInfo:
        run, number, skipped, lost, bytes, time_ns, position, writer, writer_ranks, reserved32,
        variable_count, reserved);
    layout!(text, "thalweg_step_variable", ThalwegStepVariable:
        name, dtype, shape, ndim, kind, item_bytes, joined, block_count, reserved);
    layout!(text, "thalweg_step_block_info", ThalwegStepBlockInfo:
        rank, ndim, start, count, min, max, reserved);
    layout!(text, "thalweg_step_get", ThalwegStepGet:
        name, block, ndim, reserved32, start, count, step, into, size, strides, uncovered,
        reserved);
    layout!(text, "thalweg_step_attribute", ThalwegStepAttribute:
        name, dtype, value, size, count, item_bytes, is_list, reserved);
    compile("layout", &text);
}

#[test]
fn codes_are_those_of_the_header() {
    let mut text = String::new();
    let mut assert = |name: &str, code: i32| {
        writeln!(text, "_Static_assert(THALWEG_{name} == {code}, \"code\");").unwrap();
    };
    let upper = |name: String| {
        let mut upper = String::new();
        for character in name.chars() {
            if character.is_uppercase() && !upper.is_empty() {
                upper.push('_');
            }
            upper.extend(character.to_uppercase());
        }
        upper
    };
    for code in Code::ALL {
        assert(&upper(format!("{code:?}")), *code as i32);
    }
    for code in wire::ErrorCode::ALL {
        let name = format!("SERVER_{}", upper(format!("{code:?}")));
        assert(&name, crate::error::SERVER_CODES + i32::from(*code as u16));
    }
    assert("ABI_VERSION", crate::boundary::thalweg_abi_version() as i32);
    compile("codes", &text);
}

/// What a type of a parameter is in C.
fn in_c(rust: &str) -> String {
    let names = BTreeMap::from([
        ("Driver", "thalweg_driver"),
        ("Topic", "thalweg_topic"),
        ("Producer", "thalweg_producer"),
        ("Consumer", "thalweg_consumer"),
        ("Queue", "thalweg_queue"),
        ("Drain", "thalweg_drain"),
        ("Reader", "thalweg_reader"),
        ("Requester", "thalweg_requester"),
        ("Future", "thalweg_future"),
        ("Event", "thalweg_event"),
        ("View", "thalweg_view"),
        ("Memory", "thalweg_memory"),
        ("ThalwegSegment", "thalweg_segment"),
        ("ThalwegMessage", "thalweg_message"),
        ("ThalwegEventId", "thalweg_event_id"),
        ("ThalwegEventInfo", "thalweg_event_info"),
        ("ThalwegHeader", "thalweg_header"),
        ("ThalwegDataCallbacks", "thalweg_data_callbacks"),
        ("ThalwegGroupCallbacks", "thalweg_group_callbacks"),
        ("StepStream", "thalweg_step_stream"),
        ("StepRuns", "thalweg_step_runs"),
        ("StepWriter", "thalweg_step_writer"),
        ("StepReader", "thalweg_step_reader"),
        ("StepAttributes", "thalweg_step_attributes"),
        ("StepView", "thalweg_step"),
        ("ThalwegStepRunInfo", "thalweg_step_run_info"),
        ("ThalwegStepBlock", "thalweg_step_block"),
        ("ThalwegStepClosed", "thalweg_step_closed"),
        ("ThalwegStepEnded", "thalweg_step_ended"),
        ("ThalwegStepNext", "thalweg_step_next"),
        ("ThalwegStepInfo", "thalweg_step_info"),
        ("ThalwegStepVariable", "thalweg_step_variable"),
        ("ThalwegStepBlockInfo", "thalweg_step_block_info"),
        ("ThalwegStepGet", "thalweg_step_get"),
        ("ThalwegStepAttribute", "thalweg_step_attribute"),
        ("ThalwegBytes", "thalweg_bytes"),
        ("c_char", "char"),
        ("c_void", "void"),
        ("c_int", "int"),
        ("i32", "int32_t"),
        ("u32", "uint32_t"),
        ("i64", "int64_t"),
        ("u64", "uint64_t"),
        ("usize", "size_t"),
    ]);
    if let Some(name) = names.get(rust) {
        return (*name).to_owned();
    }
    let inside = |before: &str, behind: &str| {
        rust.strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(behind))
            .map(in_c)
    };
    if rust == "*const *const c_char" {
        "const char *const *".to_owned()
    } else if rust == "ErrorOut<'_>" {
        "thalweg_error *".to_owned()
    } else if rust == "Option<extern \"C\" fn(*mut c_void)>" {
        "thalweg_callback".to_owned()
    } else if rust == "Option<extern \"C\" fn(*mut c_void, *const c_char)>" {
        "thalweg_text_callback".to_owned()
    } else if let Some(inner) = inside("Out<'_, ", ">")
        .or_else(|| inside("Option<Box<", ">>"))
        .or_else(|| inside("Option<&mut ", ">"))
        .or_else(|| inside("*mut ", ""))
    {
        format!("{inner} *")
    } else if let Some(inner) = inside("*const ", "") {
        format!("const {inner} *")
    } else if let Some(inner) = inside("Option<&", ">") {
        // Whether it is const in C is said by the header alone.
        format!("MAYBE_CONST {inner} *")
    } else {
        panic!("what is {rust} in C?")
    }
}

/// The functions of this crate: name, parameters, result.
fn functions() -> Vec<(String, Vec<String>, String)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for part in text.split("pub extern \"C\" fn thalweg_").skip(1) {
            let (name, rest) = part.split_once('(').unwrap();
            let end = rest.find("\n}").unwrap();
            let (parameters, result) = rest[..end]
                .split_once(" {\n")
                .unwrap()
                .0
                .rsplit_once(')')
                .unwrap();
            let mut types = Vec::new();
            for parameter in parameters.split(['\n', ',']) {
                // `Out<'_, T>` has a comma of its own.
                match parameter.trim().split_once(": ") {
                    Some((_, kind)) => types.push(kind.to_owned()),
                    None if parameter.trim().is_empty() => {}
                    None => {
                        let last: &mut String = types.last_mut().unwrap();
                        *last = format!("{last}, {}", parameter.trim());
                    }
                }
            }
            let result = result.trim().trim_start_matches("-> ").to_owned();
            found.push((format!("thalweg_{name}"), types, result));
        }
    }
    found
}

/// The compiler refuses a function that is declared in two ways.
#[test]
fn functions_have_the_types_of_the_header() {
    let header = ["thalweg.h", "sharing.h", "steps.h"]
        .map(|name| std::fs::read_to_string(root().join("include/thalweg").join(name)).unwrap())
        .concat();
    let functions = functions();
    assert!(functions.len() > 40, "only {} are found", functions.len());
    let mut text = "typedef void (*thalweg_callback)(void *context);\n\
                    typedef void (*thalweg_text_callback)(void *context, const char *text);\n"
        .to_owned();
    for (name, parameters, result) in &functions {
        let declared = header.split_once(&format!("{name}(")).unwrap_or_else(|| {
            panic!("{name} is not in the header");
        });
        let declared = declared.1.split_once(';').unwrap().0;
        let result = match result.as_str() {
            "" => "void".to_owned(),
            result => in_c(result),
        };
        let mut types = Vec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let kind = in_c(parameter);
            let is_const = declared
                .split(',')
                .nth(index)
                .is_some_and(|said| said.trim().starts_with("const"));
            types.push(kind.replace("MAYBE_CONST ", if is_const { "const " } else { "" }));
        }
        let types = match types.is_empty() {
            true => "void".to_owned(),
            false => types.join(", "),
        };
        writeln!(text, "{result} {name}({types});").unwrap();
    }
    for line in header
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic))
    {
        let Some((before, _)) = line.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        assert!(
            functions.iter().any(|(known, _, _)| known == name),
            "the header declares {name}, which is not here"
        );
    }
    compile("functions", &text);
}
