//! What faults of a run are done with, beside signals to its clients: its server, its token, its way to the server.

use super::cut::CutWay;
use super::own::Own;
use super::route::Route;
use super::tokens::Tokens;
use crate::failure::{About, Failure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::time::Duration;
use workload::{Act, Common, Disruption, Moment, Scenario, Target};

/// What there is of it: all of it is there only where a fault needs it, but for the server of --serve.
pub struct Means {
    own: Option<Own>,
    tokens: Option<Tokens>,
    way: Option<CutWay>,
    /// The process group of what clients reach first, if anything stands before the server.
    entrance: Option<u32>,
    /// Whether the server is not the one that the run began with.
    is_another: bool,
}

impl Means {
    /// For the faults of a scenario, whose server is there, and what stands before it.
    pub fn new(scenario: &Scenario, own: Option<Own>, route: &Route) -> Result<Self, Failure> {
        let find = |act: Act| scenario.disruptions.iter().find(|one| one.act == act);
        let tokens = match (&own, find(Act::ExpireToken).map(|one| one.moment)) {
            (Some(own), Some(Moment::After(ms))) => Some(Tokens::new(
                own.data(),
                own.file("clients.token"),
                Duration::from_millis(ms),
            )),
            _ => None,
        };
        let way = match find(Act::Cut) {
            Some(_) => Some(CutWay::to(scenario.backend, route.clients())?),
            None => None,
        };
        Ok(Self {
            own,
            tokens,
            way,
            entrance: route.processes().next().map(|(_, group)| group),
            is_another: false,
        })
    }

    /// A run begins.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.is_another = false;
        self.tokens.as_mut().map_or(Ok(()), Tokens::begin)
    }

    /// All of a run go.
    pub fn go(&mut self) -> Result<(), Failure> {
        self.tokens.as_mut().map_or(Ok(()), Tokens::go)
    }

    /// Time passes.
    pub fn tick(&mut self) -> Result<(), Failure> {
        self.tokens.as_mut().map_or(Ok(()), Tokens::renew)
    }

    /// A run is over, whatever is still to end by then.
    pub fn end(&mut self) -> Result<(), Failure> {
        if let Some(way) = &self.way {
            way.open();
        }
        self.signal_entrance(Signal::CONT)?;
        match &mut self.own {
            // To one that does not stand still it is nothing.
            Some(own) => own.signal(Signal::CONT),
            None => Ok(()),
        }
    }

    /// What clients have in place of what the runner has.
    pub fn lead(&self, common: &mut Common) {
        if let Some(way) = &self.way {
            common.url = Some(way.url().clone());
        }
        if let Some(tokens) = &self.tokens {
            common.credential = Some(tokens.file().to_owned());
        }
    }

    /// How clients reach the server, if that is not how the runner does: the scheme of their address.
    pub fn transport(&self) -> Option<&'static str> {
        self.way.as_ref().map(CutWay::transport)
    }

    /// Whether the server is the command's own.
    pub fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// The number of the server that the run began with, if it is there still and the command's own.
    pub fn server(&self) -> Option<u32> {
        let own = self.own.as_ref().filter(|_| !self.is_another);
        own.map(Own::id)
    }

    /// Does to the server, the token or the way what is to be done on purpose.
    pub fn disrupt(&mut self, disruption: &Disruption) -> Result<(), Failure> {
        if disruption.target == Target::Proxy {
            return self.signal_entrance(Signal::STOP);
        }
        match (disruption.act, &mut self.own, &self.way) {
            (Act::Kill, Some(own), _) => {
                self.is_another = true;
                own.kill_and_start()
            }
            (Act::Stop, Some(own), _) => own.signal(Signal::STOP),
            (Act::Cut, _, Some(way)) => {
                way.shut();
                Ok(())
            }
            // It expires by itself.
            (Act::ExpireToken, ..) => Ok(()),
            _ => unreachable!("scenarios with other faults are refused"),
        }
    }

    /// Ends that.
    pub fn relieve(&mut self, disruption: &Disruption) -> Result<(), Failure> {
        if disruption.target == Target::Proxy {
            return self.signal_entrance(Signal::CONT);
        }
        match (disruption.act, &mut self.own, &self.way, &mut self.tokens) {
            (Act::Stop, Some(own), ..) => own.signal(Signal::CONT),
            (Act::Cut, _, Some(way), _) => {
                way.open();
                Ok(())
            }
            (Act::ExpireToken, _, _, Some(tokens)) => tokens.end(),
            _ => Ok(()),
        }
    }

    /// Sends a signal to what clients reach first. If it has ended, the run hears of that by itself.
    fn signal_entrance(&self, signal: Signal) -> Result<(), Failure> {
        let group = self.entrance.and_then(|group| Pid::from_raw(group as i32));
        let Some(group) = group else {
            return Ok(());
        };
        match kill_process_group(group, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(io::Error::from(error)).about("the proxy"),
        }
    }

    /// Fails if the server has ended by itself.
    pub fn ended(&mut self) -> Result<(), Failure> {
        self.own.as_mut().map_or(Ok(()), Own::ended)
    }

    /// Ends it all.
    pub fn stop(self) -> Result<(), Failure> {
        self.own.map_or(Ok(()), Own::stop)
    }
}
