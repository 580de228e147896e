//! The beginning of a load, and resources that are known before it.

use std::collections::BTreeMap;

use url::Url;

use super::{Config, Discovery, Entry, Loader, Origin, RequestId, Start};
use crate::page::graph::{Graph, Initiator};
use crate::page::rules;

/// A graph of which parts are known to the page already.
#[derive(Debug)]
pub(super) struct Known {
    graph: Graph,
    /// The URLs, parsed.
    urls: Vec<Url>,
    /// The request that asks for each resource.
    requests: Vec<Option<RequestId>>,
    /// Resources that a resource names and that are not known yet.
    named: BTreeMap<u32, Vec<u32>>,
    /// When resources become known, µs.
    due: BTreeMap<u64, Vec<u32>>,
}

impl Known {
    pub(super) fn wake_at(&self) -> Option<u64> {
        self.due.keys().next().copied()
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.due.is_empty()
    }

    fn from_graph(graph: Graph) -> Result<Self, String> {
        if graph.resources.is_empty() {
            return Err("it has no resources".to_owned());
        }
        if graph.resources.len() > rules::REQUESTS {
            return Err(format!(
                "it has {} resources; the limit is {}",
                graph.resources.len(),
                rules::REQUESTS
            ));
        }
        let mut named: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut urls = Vec::new();
        for (number, resource) in graph.resources.iter().enumerate() {
            let url = Url::parse(&resource.url)
                .map_err(|error| format!("resource {number}: its URL is malformed: {error}"))?;
            if Origin::from_url(&url).is_none() {
                return Err(format!("resource {number}: its URL is neither http nor https"));
            }
            urls.push(url);
            match resource.initiator {
                Some(Initiator { resource: other, .. }) if (other as usize) < number => {
                    named.entry(other).or_default().push(number as u32);
                }
                Some(_) => return Err(format!("resource {number} is before its initiator")),
                None if number > 0 => {
                    return Err(format!(
                        "resource {number} has no initiator, and is not the first"
                    ));
                }
                None => {}
            }
        }
        let requests = vec![None; graph.resources.len()];
        Ok(Self { graph, urls, requests, named, due: BTreeMap::new() })
    }
}

impl Loader {
    /// Begins a load at time 0.
    ///
    /// Errors: a sentence, without the name of what is loaded: a graph that is none.
    pub fn new(config: Config, start: Start) -> Result<Self, String> {
        let mut loader = Self {
            config,
            entries: Vec::new(),
            sockets: Vec::new(),
            pools: BTreeMap::new(),
            discovery: Discovery::default(),
            graph: None,
            actions: Vec::new(),
            decoded_bytes: 0,
            document_origin: None,
            begun_us: 0,
            repeats: 0,
        };
        loader.start(start, 0)?;
        Ok(loader)
    }

    pub(super) fn start(&mut self, start: Start, now_us: u64) -> Result<(), String> {
        self.begun_us = now_us;
        match start {
            Start::Url(mut url) => {
                url.set_fragment(None);
                let origin = Origin::from_url(&url).ok_or("it is neither http nor https")?;
                self.document_origin = Some(origin.clone());
                self.queue(Entry::new(url, now_us), origin);
            }
            Start::Graph(graph) => {
                let known = Known::from_graph(graph)?;
                self.document_origin = Origin::from_url(&known.urls[0]);
                self.graph = Some(known);
                self.ask_known(0, now_us);
            }
        }
        Ok(())
    }

    /// Asks for a resource of the graph.
    fn ask_known(&mut self, number: u32, now_us: u64) {
        let request = RequestId(self.entries.len() as u32);
        let Some(known) = &mut self.graph else { return };
        let url = known.urls[number as usize].clone();
        let resource = &known.graph.resources[number as usize];
        let Some(origin) = Origin::from_url(&url) else { return };
        let initiator =
            resource.initiator.and_then(|initiator| known.requests[initiator.resource as usize]);
        let entry = Entry {
            kind: resource.kind,
            priority: resource.priority,
            blocking: resource.blocking,
            initiator: initiator.map(|request| request.0),
            resource: Some(number),
            ..Entry::new(url, now_us)
        };
        known.requests[number as usize] = Some(request);
        self.queue(entry, origin);
    }

    /// Content of a response arrived: what it names becomes known.
    pub(super) fn graph_arrived(&mut self, request: RequestId, all: bool, now_us: u64) {
        let entry = &self.entries[request.0 as usize];
        let Some(number) = entry.resource else { return };
        let bytes = entry.body_bytes;
        let Some(known) = &mut self.graph else { return };
        let Some(mut waiting) = known.named.remove(&number) else { return };
        waiting.retain(|&other| {
            let resource = &known.graph.resources[other as usize];
            let Some(initiator) = resource.initiator else { return false };
            let here = all || initiator.at_byte.is_some_and(|at| bytes >= at);
            if here {
                let at = now_us.saturating_add(initiator.delay_us);
                known.due.entry(at).or_default().push(other);
            }
            !here
        });
        if !waiting.is_empty() {
            known.named.insert(number, waiting);
        }
    }

    /// Asks for all resources that are due.
    pub(super) fn release_known(&mut self, now_us: u64) {
        while let Some(known) = &mut self.graph
            && let Some(first) = known.due.first_entry()
            && *first.key() <= now_us
        {
            for number in first.remove() {
                self.ask_known(number, now_us);
            }
        }
    }
}
