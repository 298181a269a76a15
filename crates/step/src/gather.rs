//! From the table of a step to an array: which bytes of which parts a selection is, and how what
//! was read of them is put together.

mod copy;
mod error;
mod index;
mod layout;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use copy::cut;
pub use error::GatherError;
pub use layout::{Block, Layout};
pub(crate) use plan::push;
pub use plan::{Coverage, Destination, PIECES_MAX, PartRead, Plan};
