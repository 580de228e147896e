//! Our own server of a trial, from before the load until after it.
//!
//! Order of use: [`Server::listen`], [`Server::at`] for the load, [`Server::end`], then its answer.

use std::net::SocketAddr;

use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::Service;

use crate::kit::plan::TrialError;

/// A server that listens on one address of the server host.
pub(crate) struct Server<O: Service> {
    running: Option<(Begun<O>, SocketAddr)>,
    /// What it reports at its end.
    pub(crate) answer: Option<O::Answer>,
}

impl<O: Service> Default for Server<O> {
    fn default() -> Self {
        Self { running: None, answer: None }
    }
}

impl<O: Service<Started = SocketAddr>> Server<O> {
    /// Starts it.
    pub(crate) fn listen(&mut self, hosts: &mut Hosts, order: &O) -> Result<(), TrialError> {
        let (at, begun) = hosts.server()?.start(order)?;
        self.running = Some((begun, at));
        Ok(())
    }

    /// The address on which it listens.
    ///
    /// Errors: it does not run.
    pub(crate) fn at(&self) -> Result<SocketAddr, TrialError> {
        self.running.as_ref().map(|(_, at)| *at).ok_or_else(not_started)
    }

    /// Ends it, and takes its answer.
    pub(crate) fn end(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        if let Some((begun, _)) = self.running.take() {
            self.answer = Some(hosts.server()?.stop(begun)?.answer);
        }
        Ok(())
    }
}

/// A load needs a server that was not started: the procedure listens before it loads.
pub(crate) fn not_started() -> TrialError {
    TrialError::Lab(LabError::Refused("the server was not started".to_owned()))
}
