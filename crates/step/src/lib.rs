//! Steps of arrays: what the ranks of a program put, and what readers select of it.
//!
//! A stream of steps is a topic of kind `steps`. Each of the W ranks of a writing program pushes
//! one *part* a step: its blocks of the variables, one behind the other. When all parts are as
//! durable as the topic promises, the server appends the step's *record*, with the table of all
//! blocks. A reader that sees the record may read any box of any variable. The bytes are on the page
//! `docs/format/steps.md`.
//!
//! Half of the crate is pure: [`DType`] (element types), [`Selection`] (what is wanted of a
//! variable), [`Layout`] and [`Plan`] (which bytes of which parts that is, and how they are put
//! together), [`Staging`] (a rank's blocks on their way). The other half talks to a server:
//! [`Stream`] (what is stored), [`Writer`] and [`Reader`] (one rank of a program each), [`StepView`]
//! (a step, as it is read). Every wait has a deadline, and its error says which rank is behind.

#![forbid(unsafe_code)]

mod ahead;
mod attributes;
mod blocks;
mod dtype;
mod error;
mod faults;
mod gather;
mod held;
mod preload;
mod reader;
mod reading;
mod records;
mod selection;
mod staging;
mod step_states;
mod stream;
mod together;
mod turn;
mod view;
mod waiting;
mod writer;
mod writer_options;

pub use attributes::{AttributeValue, Attributes};
pub use dtype::{
    ByteOrder, DEPTH_MAX, DTYPE_BYTES_MAX, DType, DTypeError, Element, Extremes, Field,
};
pub use error::StepError;
pub use faults::Fault;
#[cfg(any(test, feature = "testing"))]
pub use faults::plant;
pub use gather::{Block, Coverage, Destination, GatherError, Layout, PIECES_MAX, PartRead, Plan};
pub use preload::Preload;
pub use reader::{Next, Reader, ReaderOptions};
pub use selection::{Along, Range, Selection, SelectionError, SelectionProblem};
pub use staging::{Place, Put, PutError, Span, Staging, VALUE_BYTES_MAX};
pub use stream::{RunInfo, RunState, StepInfo, Stream, StreamOptions};
pub use view::{Array, GetInto, GetTarget, StepView, VariableInfo};
pub use writer::{STEPS_UNDER_WAY_MAX, SpanId, Writer};
pub use writer_options::{CLOSE_TIMEOUT, Closed, Keep, StepEnded, Wait, WriterOptions};

// What callers of this crate need of the others.
pub use topic::Retention;
pub use wire::message::{Distribution, StepStart, WhenFull};
pub use wire::step::ShapeKind;
pub use wire::{Rank, Run, Step};
