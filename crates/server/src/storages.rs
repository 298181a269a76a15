//! Kinds of storage that a program brings to the server that it starts.

use crate::error::ServerError;
use log::{Disk, DiskKind, MemoryKind, StorageKind};
use std::fmt;
use std::sync::Arc;

type Make = Arc<dyn Fn(Arc<dyn Disk>) -> Arc<dyn StorageKind> + Send + Sync>;

/// Kinds of storage beside `disk` and `memory`, which topics name as they name
/// those.
///
/// A kind is a [`StorageKind`]; what its storages must do is tested by
/// `log::testing::check_storage`. `examples/own_storage` is one. A server that
/// is started without the kind of a partition reports it and serves the rest.
#[derive(Clone, Default)]
pub struct Storages {
    makes: Vec<Make>,
}

impl Storages {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with what `make` makes of the server's disk, on which the
    /// operations of its storages are carried out. It is asked once for each shard.
    pub fn with(
        mut self,
        make: impl Fn(Arc<dyn Disk>) -> Arc<dyn StorageKind> + Send + Sync + 'static,
    ) -> Self {
        self.makes.push(Arc::new(make));
        self
    }

    /// All kinds of a server on this disk, its own first.
    pub(crate) fn into_kinds(
        self,
        disk: &Arc<dyn Disk>,
    ) -> Result<Vec<Arc<dyn StorageKind>>, ServerError> {
        let mut kinds: Vec<Arc<dyn StorageKind>> =
            vec![Arc::new(DiskKind::new(disk.clone())), Arc::new(MemoryKind)];
        for make in self.makes {
            let kind = make(disk.clone());
            let name = kind.name();
            if name.is_empty() || kinds.iter().any(|known| known.name() == name) {
                return Err(ServerError::StorageName(name));
            }
            kinds.push(kind);
        }
        Ok(kinds)
    }
}

impl fmt::Debug for Storages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storages({} beside disk and memory)", self.makes.len())
    }
}
