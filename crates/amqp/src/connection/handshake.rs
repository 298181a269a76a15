//! Channel 0: the way in, and the way out.

use super::{Connection, LINGER, State, decode, invalid};
use crate::error::{Failure, ReplyCode};
use crate::event::{Ended, Event};
use crate::frame::{FRAME_MIN, PROTOCOL_HEADER};
use crate::method::{Method, connection as methods};
use crate::settings::Tuned;
use bytes::Bytes;
use std::time::Duration;

impl Connection {
    /// Answers the protocol header. The answer to a wrong one is the right one, and the end.
    pub(super) fn start(&mut self, now: Duration, header: [u8; 8]) {
        if header != PROTOCOL_HEADER {
            self.output.raw(&PROTOCOL_HEADER);
            return self.linger(now, Ended::WrongHeader(header));
        }
        let names: Vec<_> = self
            .settings
            .mechanisms
            .iter()
            .map(|one| one.name())
            .collect();
        let start = methods::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: self.settings.server_properties(),
            mechanisms: names.join(" ").into(),
            locales: Bytes::from_static(b"en_US"),
        };
        self.output.method(0, &start.into());
        self.state = State::AwaitingStartOk;
    }

    /// Takes a method on channel 0.
    pub(super) fn connection_method(&mut self, payload: Bytes) -> Result<(), Failure> {
        let method = decode(payload)?;
        match (&self.state, method) {
            (State::Closing { failure, .. }, Method::ConnectionCloseOk(_)) => {
                let ended = Ended::Failed(failure.clone());
                self.end(ended);
                Ok(())
            }
            // Both sides close at once: the client's agreement still comes.
            // Likewise of two threads of a client.
            (State::Closing { .. } | State::Left { .. }, Method::ConnectionClose(_)) => {
                self.output.method(0, &methods::CloseOk {}.into());
                Ok(())
            }
            _ if self.is_going() => Ok(()),
            (State::Running, Method::ConnectionClose(close)) => {
                self.forget_channels();
                self.state = State::Leaving;
                self.events.push_back(Event::CloseRequested {
                    code: close.reply_code,
                    text: close.reply_text,
                });
                Ok(())
            }
            (_, Method::ConnectionClose(_)) => {
                self.output.method(0, &methods::CloseOk {}.into());
                self.end(Ended::ByClient);
                Ok(())
            }
            (State::Running, Method::ConnectionUpdateSecret(update)) if !self.is_renewing => {
                self.is_renewing = true;
                self.events.push_back(Event::UpdateSecret {
                    secret: update.new_secret,
                    reason: update.reason,
                });
                Ok(())
            }
            (State::AwaitingStartOk, Method::ConnectionStartOk(start_ok)) => self.login(start_ok),
            (State::AwaitingSecureOk, Method::ConnectionSecureOk(secure_ok)) => {
                self.state = State::Authenticating;
                self.events.push_back(Event::Response(secure_ok.response));
                Ok(())
            }
            (State::AwaitingTuneOk, Method::ConnectionTuneOk(tune_ok)) => self.tune(&tune_ok),
            (State::AwaitingOpen, Method::ConnectionOpen(open)) => {
                self.state = State::Opening;
                let name = open.virtual_host;
                self.events.push_back(Event::OpenVirtualHost(name));
                Ok(())
            }
            (_, method) => Err(invalid(method.id(), "on channel 0 is not due")),
        }
    }

    fn login(&mut self, start_ok: methods::StartOk) -> Result<(), Failure> {
        let name = &start_ok.mechanism;
        let Some(mechanism) = self.settings.mechanism(name) else {
            let text = format!("unknown authentication mechanism '{name}'");
            return Err(Failure::new(ReplyCode::CommandInvalid, text).of(methods::StartOk::ID));
        };
        let credentials = mechanism
            .credentials(start_ok.response)
            .map_err(|failure| failure.of(methods::StartOk::ID))?;
        self.client_properties = start_ok.client_properties.clone();
        self.state = State::Authenticating;
        self.events.push_back(Event::Authenticate {
            credentials,
            client_properties: start_ok.client_properties,
        });
        Ok(())
    }

    /// 0 of a client is "no limit of mine": what was offered counts.
    fn tune(&mut self, asked: &methods::TuneOk) -> Result<(), Failure> {
        let refuse =
            |what: String| Err(Failure::new(ReplyCode::NotAllowed, what).of(methods::TuneOk::ID));
        let (frame_max, channel_max) = (self.settings.frame_max, self.settings.channel_max);
        if asked.frame_max > frame_max {
            return refuse(format!(
                "negotiated frame_max = {} is higher than the maximum allowed value ({frame_max})",
                asked.frame_max
            ));
        }
        if asked.frame_max != 0 && asked.frame_max < FRAME_MIN {
            return refuse(format!(
                "negotiated frame_max = {} is lower than the minimum allowed value ({FRAME_MIN})",
                asked.frame_max
            ));
        }
        if asked.channel_max > channel_max {
            return refuse(format!(
                "negotiated channel_max = {} is higher than the maximum allowed value ({channel_max})",
                asked.channel_max
            ));
        }
        self.tuned = Tuned {
            channel_max: or_offered(asked.channel_max, channel_max),
            frame_max: or_offered(asked.frame_max, frame_max),
            heartbeat_seconds: asked.heartbeat,
        };
        self.reader.set_frame_max(self.tuned.frame_max);
        self.state = State::AwaitingOpen;
        Ok(())
    }

    /// Lets a client in: it hears what is offered.
    pub fn accept_login(&mut self) {
        if !matches!(self.state, State::Authenticating) {
            return;
        }
        let tune = methods::Tune {
            channel_max: self.settings.channel_max,
            frame_max: self.settings.frame_max,
            heartbeat: self.settings.heartbeat_seconds,
        };
        self.output.method(0, &tune.into());
        self.state = State::AwaitingTuneOk;
    }

    /// Asks for one more response.
    pub fn challenge(&mut self, challenge: Bytes) {
        if !matches!(self.state, State::Authenticating) {
            return;
        }
        self.output.method(0, &methods::Secure { challenge }.into());
        self.state = State::AwaitingSecureOk;
    }

    /// Refuses a login. A client that can read it gets 403; any other one sees its connection end, a while later,
    /// as the standard has it.
    pub fn refuse_login(&mut self, now: Duration, text: &str) {
        if !matches!(self.state, State::Authenticating) {
            return;
        }
        if !self.client_can("authentication_failure_close") {
            return self.linger(now, Ended::Refused);
        }
        self.close_hard(now, Failure::new(ReplyCode::AccessRefused, text));
    }

    /// Lets a client have its virtual host.
    pub fn accept_open(&mut self, now: Duration) {
        if !matches!(self.state, State::Opening) {
            return;
        }
        self.output.method(0, &methods::OpenOk {}.into());
        self.heard = now;
        self.sent = now;
        self.state = State::Running;
    }

    /// Confirms a renewed credential.
    pub fn accept_secret(&mut self) {
        if matches!(self.state, State::Running) && self.is_renewing {
            self.is_renewing = false;
            self.output.method(0, &methods::UpdateSecretOk {}.into());
        }
    }

    /// Lets a client leave. The line is the client's to close, for a while: its threads may read what one of them has
    /// caused.
    pub fn accept_close(&mut self, now: Duration) {
        if matches!(self.state, State::Leaving) {
            self.output.method(0, &methods::CloseOk {}.into());
            let until = now + LINGER;
            self.state = State::Left { until };
        }
    }

    /// Ends the connection with this failure, whatever its code, from `connection.start` on. An operator's way is
    /// 320.
    pub fn fail_connection(&mut self, now: Duration, failure: Failure) {
        match self.state {
            State::AwaitingHeader(..) => self.end(Ended::Failed(failure)),
            State::Leaving
            | State::Left { .. }
            | State::Closing { .. }
            | State::Lingering { .. }
            | State::Ended => {}
            _ => self.close_hard(now, failure),
        }
    }

    /// Tells a client that knows of it that it had better not publish for now.
    pub fn block(&mut self, reason: &str) {
        let reason = crate::field::ShortString::truncated(reason);
        self.tell_blocked(&methods::Blocked { reason }.into());
    }

    /// Tells it that it may again.
    pub fn unblock(&mut self) {
        self.tell_blocked(&methods::Unblocked {}.into());
    }

    fn tell_blocked(&mut self, method: &Method) {
        if matches!(self.state, State::Running) && self.client_can("connection.blocked") {
            self.output.method(0, method);
        }
    }
}

fn or_offered<T: Default + PartialEq>(asked: T, offered: T) -> T {
    if asked == T::default() {
        offered
    } else {
        asked
    }
}
