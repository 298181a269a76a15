//! What a producer sends, and a consumer replies.

use super::super::backend::{Settled, Sink};
use super::{SILENCE, failed};
use crate::failure::{Code, Failure};
use rdkafka::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Why;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A producer whose client has enough looks after so long whether it takes more.
const REST: Duration = Duration::from_millis(5);
/// A producer that waits for something else than brokers looks after so long whether that has come.
const ELSEWHERE: Duration = Duration::from_micros(100);

/// A message that may be above what a broker reads at once: where that is so the broker does not say it.
const LONG_BYTES: usize = 16 << 20;

/// What brokers have said of messages. The client's thread writes it.
#[derive(Default)]
pub struct Reports {
    reported: Mutex<Reported>,
    changed: Condvar,
}

#[derive(Default)]
struct Reported {
    settled: Vec<Settled>,
    /// Why the first was refused that was.
    why: Option<KafkaError>,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, sequence: usize) {
        let mut reported = self.lock();
        if let Err((error, _)) = result {
            reported.why.get_or_insert_with(|| error.clone());
        }
        reported.settled.push(Settled {
            sequence: sequence as u64,
            refused: result.as_ref().err().map(|(error, _)| error.to_string()),
        });
        self.changed.notify_all();
    }
}

/// A client that sends to a topic.
pub struct Sending {
    pub producer: ThreadedProducer<Reports>,
    pub name: String,
    pub topic: String,
    pub partitions: u64,
}

impl Sending {
    /// Sends a message. What cannot be sent at all is reported as refused.
    pub fn send(&self, sequence: u64, partition: u64, message: &[u8]) -> Result<(), Failure> {
        let mut record =
            BaseRecord::<'_, (), [u8], usize>::with_opaque_to(&self.topic, sequence as usize)
                .partition((partition % self.partitions) as i32)
                .payload(message);
        let mut waited = Duration::ZERO;
        loop {
            let (error, back) = match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            match error.rdkafka_error_code() {
                // Each message has a deadline, after which there is room.
                Some(Why::QueueFull) if waited < 2 * SILENCE => {
                    waited += REST;
                    std::thread::sleep(REST);
                    record = back;
                }
                Some(Why::MessageSizeTooLarge) => {
                    let mut reported = self.reports().lock();
                    reported.settled.push(Settled {
                        sequence,
                        refused: Some(error.to_string()),
                    });
                    return Ok(());
                }
                _ => return Err(failed(&self.name, "a message", &error)),
            }
        }
    }

    fn reports(&self) -> &Reports {
        self.producer.client().context()
    }

    /// Waits until all that was sent is stored.
    pub fn flush(&self) -> Result<(), Failure> {
        let flushed = self.producer.flush(SILENCE);
        flushed.map_err(|error| failed(&self.name, "replies", &error))
    }

    /// What was reported since the last call, and why something was refused if it was.
    pub fn reported(&self, wait: Duration) -> (Vec<Settled>, Option<KafkaError>) {
        let reports = self.reports();
        let mut reported = reports.lock();
        if !wait.is_zero() {
            let is_waiting = |reported: &mut Reported| reported.settled.is_empty();
            let waited = reports
                .changed
                .wait_timeout_while(reported, wait, is_waiting);
            reported = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Reported { settled, why } = &mut *reported;
        (std::mem::take(settled), why.take())
    }
}

/// A producer.
pub struct Produced {
    sending: Sending,
    /// Which partition is first: producers do not begin with the same.
    offset: u64,
    message: Vec<u8>,
    unsettled: u64,
}

impl Produced {
    pub fn new(sending: Sending, producer: u64) -> Self {
        Self {
            sending,
            offset: producer,
            message: Vec::new(),
            unsettled: 0,
        }
    }

    /// A server that has not answered in time ends the run.
    fn check(&self, why: &KafkaError) -> Result<(), Failure> {
        let name = &self.sending.name;
        if why.rdkafka_error_code() == Some(Why::MessageTimedOut) {
            let mut what = format!("no broker has taken a message in {} s", SILENCE.as_secs());
            if self.message.len() > LONG_BYTES {
                let bytes = self.message.len();
                what += &format!("; is socket.request.max.bytes above its {bytes} bytes?");
            }
            return Err(Failure::new(Code::Timeout, name, what));
        }
        Ok(())
    }
}

impl Sink for Produced {
    fn send(&mut self, sequence: u64, pieces: [&[u8]; 3]) -> Result<(), Failure> {
        self.message.clear();
        for piece in pieces {
            self.message.extend_from_slice(piece);
        }
        self.sending
            .send(sequence, sequence.wrapping_add(self.offset), &self.message)?;
        self.unsettled += 1;
        Ok(())
    }

    fn settled(&mut self, wait: Duration) -> Result<Vec<Settled>, Failure> {
        if self.unsettled == 0 && !wait.is_zero() {
            // A reply may be what is waited for, and comes elsewhere.
            std::thread::sleep(wait.min(ELSEWHERE));
            return Ok(Vec::new());
        }
        let (settled, why) = self.sending.reported(wait);
        self.unsettled = self.unsettled.saturating_sub(settled.len() as u64);
        if let Some(why) = why {
            self.check(&why)?;
        }
        Ok(settled)
    }

    fn unanswered(&self) -> Failure {
        let what = format!("{} messages are not answered", self.unsettled);
        Failure::new(Code::Timeout, &self.sending.name, what)
    }
}
