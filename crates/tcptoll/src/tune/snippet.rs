//! A setting as lines of a server's configuration: where they go, how they are checked, and how they are undone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::Setting;
use tcptoll_measure::pages::Server;

/// Threads of one process of Apache's `worker` and `event`: its default.
const THREADS: u64 = 25;

/// Connections that a process of nginx has besides its clients': listeners and a channel to the master.
const NGINX_OWN: u64 = 4;

/// The least `worker_connections` that are written: nginx's default.
const NGINX_CONNECTIONS_MIN: u64 = 512;

/// Distribution, which decides the paths of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Debian, Ubuntu and their descendants.
    #[default]
    Debian,
    /// Red Hat, Fedora, `CentOS` and their descendants.
    RedHat,
}

impl Distribution {
    /// From `/etc/os-release`. None: another one.
    pub fn of_release(text: &str) -> Option<Self> {
        let value = |wanted: &str| {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            let mut found = lines.filter(|(name, _)| *name == wanted);
            found.next().map_or("", |(_, value)| value.trim_matches(['"', '\'']))
        };
        let ids = [value("ID"), value("ID_LIKE")];
        ids.into_iter().flat_map(str::split_whitespace).find_map(|id| match id {
            "debian" | "ubuntu" => Some(Self::Debian),
            "rhel" | "fedora" | "centos" => Some(Self::RedHat),
            _ => None,
        })
    }

    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Debian => "Debian and Ubuntu",
            Self::RedHat => "Red Hat, Fedora and CentOS",
        }
    }
}

/// Lines and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Piece {
    /// The file.
    pub path: String,
    /// Place in the file, if the lines are only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The lines, without line ends.
    pub lines: Vec<String>,
}

impl Piece {
    /// Where the lines go: the file, and the place in it.
    pub fn at(&self) -> String {
        let place = self.place.as_ref().map_or(String::new(), |place| format!(", {place}"));
        format!("{}{place}", self.path)
    }

    fn new(path: &str, place: Option<&str>, text: &str) -> Self {
        let lines = text.lines().map(str::to_owned).collect();
        Self { path: path.to_owned(), place: place.map(str::to_owned), lines }
    }
}

/// A setting as configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snippet {
    /// Distribution for whose files it is written.
    pub distribution: Distribution,
    /// The files.
    pub pieces: Vec<Piece>,
    /// How to install, check and activate it, in this order. All but the first are commands.
    pub apply: Vec<String>,
    /// Its cost.
    pub cost: String,
    /// How to undo it, commands or a sentence each.
    pub undo: Vec<String>,
}

impl Snippet {
    /// For a server of a distribution. `comments`: lines before the first directive; `cost`: a sentence.
    pub fn new(
        server: Server,
        distribution: Distribution,
        setting: &Setting,
        (comments, cost): (&[String], &str),
    ) -> Self {
        let (pieces, apply, undo) = match server {
            Server::Nginx => nginx(distribution, setting, comments),
            _ => apache(server, distribution, setting, comments),
        };
        let files: Vec<&str> = pieces.iter().map(|piece| piece.path.as_str()).collect();
        let put = format!("write the lines into {}", files.join(" and "));
        let apply = [vec![put], apply].concat();
        Self { distribution, pieces, apply, cost: cost.to_owned(), undo }
    }

    /// All of it as a text: each file with its path, its place and its lines.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            text += &format!("# file {}\n", piece.at());
            for line in &piece.lines {
                text += &format!("{line}\n");
            }
            text += "\n";
        }
        for (what, lines) in [("apply", &self.apply), ("undo", &self.undo)] {
            for line in lines {
                text += &format!("# {what}: {line}\n");
            }
        }
        text + &format!("# cost: {}\n", self.cost)
    }
}

type Parts = (Vec<Piece>, Vec<String>, Vec<String>);

fn commented(comments: &[String]) -> String {
    let line = |text: &String| format!("# {}\n", text.replace(['\n', '\r'], " "));
    comments.iter().map(line).collect()
}

/// Whole seconds, or milliseconds with their unit.
fn time(ms: u64, seconds: &str) -> String {
    if ms.is_multiple_of(1_000) { format!("{}{seconds}", ms / 1_000) } else { format!("{ms}ms") }
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

fn apache(
    server: Server,
    distribution: Distribution,
    setting: &Setting,
    comments: &[String],
) -> Parts {
    let mut text = commented(comments);
    match setting.timeout_ms {
        None => text += "KeepAlive Off\n",
        Some(ms) => {
            text += &format!(
                "KeepAlive On\nKeepAliveTimeout {}\nMaxKeepAliveRequests {}\n",
                time(ms, ""),
                setting.requests
            );
        }
    }
    let workers = setting.workers.max(1);
    let mpm = server.mpm().unwrap_or("prefork");
    let lines = if server == Server::ApachePrefork {
        format!("    ServerLimit {workers}\n    MaxRequestWorkers {workers}\n")
    } else {
        let processes = workers.div_ceil(THREADS);
        let threads = workers.div_ceil(processes);
        format!(
            "    ServerLimit {processes}\n    ThreadsPerChild {threads}\n    MaxRequestWorkers {}\n",
            processes * threads
        )
    };
    text += &format!("<IfModule mpm_{mpm}_module>\n{lines}</IfModule>\n");
    let (path, apply, undo) = match distribution {
        // Read after the modules' files and after the lines of apache2.conf itself.
        Distribution::Debian => (
            "/etc/apache2/conf-available/zz-tcptoll.conf",
            strings(&["a2enconf zz-tcptoll", "apachectl configtest", "systemctl restart apache2"]),
            strings(&["a2disconf zz-tcptoll", "systemctl restart apache2"]),
        ),
        Distribution::RedHat => (
            "/etc/httpd/conf.d/zz-tcptoll.conf",
            strings(&["apachectl configtest", "systemctl restart httpd"]),
            strings(&["rm /etc/httpd/conf.d/zz-tcptoll.conf", "systemctl restart httpd"]),
        ),
    };
    (vec![Piece::new(path, None, &text)], apply, undo)
}

fn nginx(distribution: Distribution, setting: &Setting, comments: &[String]) -> Parts {
    let mut http = commented(comments);
    match setting.timeout_ms {
        None => http += "keepalive_timeout 0;\n",
        Some(ms) => {
            // nginx has no word for "no limit".
            let requests =
                if setting.requests == 0 { u64::from(u32::MAX) } else { setting.requests };
            http +=
                &format!("keepalive_timeout {};\nkeepalive_requests {requests};\n", time(ms, "s"));
        }
    }
    // Any share of the connections may be with one process, so each may have all.
    let connections = (setting.workers + NGINX_OWN).max(NGINX_CONNECTIONS_MIN);
    let own_file = "/etc/nginx/nginx.conf";
    let events = Piece::new(
        own_file,
        Some("in the block events { }, instead of the line worker_connections"),
        &format!("worker_connections {connections};\n"),
    );
    // Red Hat's nginx.conf sets keepalive_timeout itself: a second line in another file would be refused.
    let (path, place, undo_http) = match distribution {
        Distribution::Debian => {
            let path = "/etc/nginx/conf.d/zz-tcptoll.conf";
            (path, None, format!("rm {path}"))
        }
        Distribution::RedHat => (
            own_file,
            Some("in the block http { }, instead of the line keepalive_timeout"),
            "restore the previous line keepalive_timeout".to_owned(),
        ),
    };
    let undo = vec![
        undo_http,
        "restore the previous line worker_connections".to_owned(),
        "systemctl reload nginx".to_owned(),
    ];
    let pieces = vec![Piece::new(path, place, &http), events];
    (pieces, strings(&["nginx -t", "systemctl reload nginx"]), undo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting { timeout_ms: Some(2_000), requests: 100, workers: 22 }
    }

    fn snippet(server: Server, distribution: Distribution, setting: &Setting) -> Snippet {
        Snippet::new(server, distribution, setting, (&[], "none"))
    }

    #[test]
    fn prefork_has_its_limit_of_processes_and_the_files_of_its_distribution() {
        let comments = ["found by\nmeasuring".to_owned()];
        let debian = Snippet::new(
            Server::ApachePrefork,
            Distribution::Debian,
            &setting(),
            (&comments, "memory"),
        );
        assert_eq!(
            debian.pieces[0].lines.join("\n"),
            "# found by measuring\nKeepAlive On\nKeepAliveTimeout 2\nMaxKeepAliveRequests 100\n\
             <IfModule mpm_prefork_module>\n    ServerLimit 22\n    MaxRequestWorkers 22\n</IfModule>"
        );
        assert!(debian.pieces[0].path.starts_with("/etc/apache2/"));
        let text = debian.text();
        assert!(text.starts_with("# file /etc/apache2/conf-available/zz-tcptoll.conf\n"), "{text}");
        assert!(text.ends_with("# cost: memory\n"), "{text}");
        let red_hat = snippet(Server::ApachePrefork, Distribution::RedHat, &setting());
        assert!(red_hat.pieces[0].path.starts_with("/etc/httpd/"));
    }

    #[test]
    fn threads_are_whole_processes_and_keep_alive_off_is_one_word() {
        let off = Setting { timeout_ms: None, workers: 60, ..setting() };
        let text =
            snippet(Server::ApacheEvent, Distribution::Debian, &off).pieces[0].lines.join("\n");
        assert!(text.starts_with("KeepAlive Off\n<IfModule mpm_event_module>"), "{text}");
        assert!(text.contains("ServerLimit 3\n    ThreadsPerChild 20\n    MaxRequestWorkers 60"));
    }

    #[test]
    fn every_process_of_nginx_may_have_all_connections() {
        let half = Setting { timeout_ms: Some(1_500), requests: 0, workers: 1_000 };
        let found = snippet(Server::Nginx, Distribution::Debian, &half);
        let http = ["keepalive_timeout 1500ms;", "keepalive_requests 4294967295;"];
        assert_eq!(found.pieces[0].lines, http);
        assert_eq!(found.pieces[1].lines, ["worker_connections 1004;"]);
        let few = Setting { workers: 20, ..half };
        assert_eq!(
            snippet(Server::Nginx, Distribution::Debian, &few).pieces[1].lines,
            ["worker_connections 512;"]
        );
    }

    #[test]
    fn lines_that_red_hat_has_in_nginx_conf_are_replaced_there() {
        let found = snippet(Server::Nginx, Distribution::RedHat, &setting());
        assert_eq!(found.pieces[0].path, "/etc/nginx/nginx.conf");
        assert!(found.pieces[0].place.as_ref().unwrap().contains("instead of"));
    }

    #[test]
    fn a_distribution_is_known_by_its_own_name_first() {
        let distribution = Distribution::of_release;
        assert_eq!(distribution("NAME=\"Debian\"\nID=debian\n"), Some(Distribution::Debian));
        assert_eq!(
            distribution("ID_LIKE=\"rhel centos fedora\"\nID='rocky'\n"),
            Some(Distribution::RedHat)
        );
        assert_eq!(distribution("ID_LIKE=\"fedora\"\nID=ubuntu\n"), Some(Distribution::Debian));
        assert_eq!(distribution("ID=alpine\n"), None);
    }
}
