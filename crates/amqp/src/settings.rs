//! What a server offers, and what both sides agreed on.

use crate::frame::FRAME_MIN;
use crate::sasl::Mechanism;
use crate::table::{Table, Value};

/// What a server offers. The defaults are for a server of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its name. Some clients read it: kombu uses another qos for `RabbitMQ`.
    pub product: String,
    /// Its version, as x.y.z. PerfTest fails without one, and changes its queues from 4.3.0 on.
    pub version: String,
    /// The mechanisms that it offers, the preferred one first.
    pub mechanisms: Vec<Mechanism>,
    /// The largest frame: 1 MiB. A body of 4 MB then takes 4 frames, and 31 with RabbitMQ's 131072.
    pub frame_max: u32,
    /// The greatest number of a channel: 2047, as RabbitMQ has it.
    pub channel_max: u16,
    /// Seconds of a heartbeat interval: 60, as RabbitMQ has it; 0 is without.
    pub heartbeat_seconds: u16,
    /// The longest body of a message: 128 MiB. A longer one closes its channel.
    pub message_bytes_max: u64,
    /// Bytes of properties and bodies that are under way on all channels of a connection together: 512 MiB. More close it.
    pub assembly_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            product: "Thalweg".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mechanisms: vec![Mechanism::Plain, Mechanism::Amqplain],
            frame_max: 1 << 20,
            channel_max: 2047,
            heartbeat_seconds: 60,
            message_bytes_max: 128 << 20,
            assembly_bytes_max: 512 << 20,
        }
    }
}

/// What RabbitMQ calls capabilities, as far as a connection and a broker of ours have them.
const CAPABILITIES: [&str; 6] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "authentication_failure_close",
    "per_consumer_qos",
];

impl Settings {
    /// # Panics
    /// If the settings exclude each other.
    pub(crate) fn check(&self) {
        assert!(
            self.frame_max >= FRAME_MIN,
            "frame_max {} is below {FRAME_MIN}",
            self.frame_max
        );
        assert!(self.channel_max > 0, "a connection needs a channel");
    }

    pub(crate) fn server_properties(&self) -> Table {
        let capabilities = CAPABILITIES.map(|name| (name, Value::Bool(true)));
        Table::of([
            ("capabilities", Value::Table(Table::of(capabilities))),
            ("product", Value::text(&self.product)),
            ("version", Value::text(&self.version)),
            ("platform", Value::text("Rust")),
        ])
    }

    pub(crate) fn mechanism(&self, name: &str) -> Option<Mechanism> {
        let mut offered = self.mechanisms.iter().copied();
        offered.find(|mechanism| mechanism.name() == name)
    }
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuned {
    /// The greatest number of a channel.
    pub channel_max: u16,
    /// The largest frame, in both directions.
    pub frame_max: u32,
    /// Seconds of a heartbeat interval; 0 is without.
    pub heartbeat_seconds: u16,
}
