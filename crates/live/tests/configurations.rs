//! What servers are configured to do, from files that exist only here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use tcptoll_live::doctor::config::{Files, Process, read};
use tcptoll_live::doctor::{Program, ServerConfig, Sourced, Upstream};

/// Files by path; those without a text may not be read.
#[derive(Default)]
struct Held(BTreeMap<String, Option<String>>);

impl Files for Held {
    fn read(&mut self, path: &str) -> Result<String, String> {
        match self.0.get(path) {
            Some(Some(text)) => Ok(text.clone()),
            Some(None) => Err("permission denied".to_owned()),
            None => Err("no such file".to_owned()),
        }
    }

    fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let Some((before, after)) = pattern.split_once('*') else {
            return Ok(self.0.keys().filter(|path| *path == pattern).cloned().collect());
        };
        let matches = |path: &&String| path.starts_with(before) && path.ends_with(after);
        Ok(self.0.keys().filter(matches).cloned().collect())
    }
}

fn process(arguments: &[&str], version: Option<&str>) -> Process {
    Process {
        pid: 7,
        version: version.map(str::to_owned),
        arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
        directory: "/run".to_owned(),
        cpus: 4,
        kernel_keepalive_s: 7_200.0,
        ..Process::default()
    }
}

fn config(
    program: Program,
    (arguments, version): (&[&str], Option<&str>),
    files: &[(&str, &str)],
) -> ServerConfig {
    let files = files.iter().map(|&(path, text)| (path.to_owned(), Some(text.to_owned())));
    read(program, &process(arguments, version), &mut Held(files.collect()))
}

fn nginx(version: &str, http: &str) -> ServerConfig {
    let text = format!("events {{}} http {{\n{http}\n}}");
    let title = ["nginx: master process nginx -c /n.conf"];
    config(Program::Nginx, (&title, Some(version)), &[("/n.conf", &text)])
}

fn reuses(version: &str, location: &str) -> Option<bool> {
    let text = format!(
        "map $http_upgrade $up {{ default upgrade; '' close; }}\nmap $http_upgrade $empty {{ \
         default upgrade; '' ''; }}\nupstream a {{ server b; keepalive 4; }}\nserver {{ location \
         / {{ proxy_pass http://a; {location} }} }}"
    );
    let config = nginx(version, &text);
    config.upstreams.first()?.reuses.as_ref().map(|reuses| reuses.value)
}

#[track_caller]
#[expect(clippy::needless_pass_by_value)] // callers write the value in place
fn is<T: PartialEq + Debug + Clone>(value: Option<&Sourced<T>>, expected: T, at: &str) {
    let value = value.expect("it is read");
    assert_eq!((&value.value, value.at.to_string().as_str()), (&expected, at));
}

#[test]
fn nginx_reuses_upstream_connections_only_with_a_version_and_a_header_that_allow_it() {
    let both = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
    for (version, location, expected) in [
        ("1.22.1", "", Some(false)),
        ("1.22.1", "proxy_http_version 1.1;", Some(false)),
        ("1.22.1", "proxy_set_header Connection \"\";", Some(false)),
        ("1.22.1", both, Some(true)),
        ("1.22.1", "proxy_http_version 1.1; proxy_set_header Connection $up;", Some(false)),
        ("1.22.1", "proxy_http_version 1.1; proxy_set_header Connection $empty;", Some(true)),
        ("1.22.1", "proxy_http_version 1.1; proxy_set_header Connection $other;", None),
        ("1.29.6", "", Some(false)),
        ("1.29.7", "", Some(true)),
        ("1.30.0", "proxy_http_version 1.0;", Some(false)),
        ("1.30.0", "proxy_set_header Connection close;", Some(false)),
    ] {
        assert_eq!(reuses(version, location), expected, "{version} {location}");
    }
}

#[test]
fn nginx_inherits_headers_only_where_a_level_has_none() {
    let all = "proxy_http_version 1.1;\nproxy_set_header Connection '';\nupstream a { server b; \
               keepalive 4; }\nserver { listen 80;\nlocation /1 { proxy_pass http://a; }\nlocation \
               /2 { proxy_set_header Host x; proxy_pass http://a; } }";
    let config = nginx("1.22.1", all);
    let found: Vec<Option<bool>> =
        config.upstreams.iter().map(|one| one.reuses.as_ref().map(|one| one.value)).collect();
    assert_eq!(found, [Some(true), Some(false)]);
    is(config.upstreams[0].reuses.as_ref(), true, "/n.conf:3");
    is(config.upstreams[1].reuses.as_ref(), false, "the default of nginx 1.22.1");
}

#[test]
fn nginx_keeps_upstreams_without_being_told_to_since_1_29_7() {
    let http = "upstream a { server b; } server { location / { proxy_pass http://a; } }";
    let idle = |version| nginx(version, http).upstreams[0].idle_connections.clone();
    assert_eq!(idle("1.29.6"), None);
    is(idle("1.29.7").as_ref(), 32, "the default of nginx 1.29.7");
    let off = http.replace("server b;", "server b; keepalive 0;");
    assert_eq!(nginx("1.30.1", &off).upstreams[0].idle_connections, None);
}

#[test]
fn nginx_listens_are_read_with_their_parameters_and_arguments_of_the_title() {
    let title = ["nginx: master process nginx -g worker_processes 3; daemon off; -c /n.conf"];
    let text = "events { worker_connections 100; }\nhttp { server { listen 8080 backlog=99 \
                sndbuf=1m so_keepalive=on; listen [::]:443 ssl; listen unix:/s; listen 443 quic; } \
                server { location / { return 204 '}'; } } }\nstream { server { listen 1; \
                proxy_pass 127.0.0.1:2; } }";
    let config = config(Program::Nginx, (&title, None), &[("/n.conf", text)]);
    let on: Vec<&str> = config.listens.iter().map(|one| one.on.as_str()).collect();
    assert_eq!(on, ["0.0.0.0:8080", "[::]:443", "/s", "0.0.0.0:80", "0.0.0.0:1"]);
    is(config.listens[0].backlog.as_ref(), 99, "/n.conf:2");
    is(config.listens[0].tcp_keepalive_s.as_ref(), 7_200.0, "/n.conf:2");
    is(config.buffers.as_ref().unwrap().send.as_ref(), 1 << 20, "/n.conf:2");
    is(config.listens[1].backlog.as_ref(), 511, "the default of nginx");
    is(config.workers.as_ref(), 300, "/n.conf:1");
    assert_eq!(config.listens[1].port(), Some(443));
    assert_eq!(config.listens[2].port(), None);
}

#[test]
fn an_unread_file_is_named_and_takes_all_defaults_with_it() {
    let mut files = Held::default();
    let text = "events {} http { include c/*.conf; include gone; server { listen 80; } }";
    files.0.insert("/etc/nginx/nginx.conf".to_owned(), Some(text.to_owned()));
    files.0.insert("/etc/nginx/c/a.conf".to_owned(), None);
    let config = read(Program::Nginx, &process(&["nginx"], Some("1.22.1")), &mut files);
    assert_eq!(
        config.unread,
        ["/etc/nginx/c/a.conf: permission denied", "/etc/nginx/gone: no such file"]
    );
    assert_eq!(config.listens[0].on, "0.0.0.0:80");
    assert_eq!(config.listens[0].backlog, None);
    assert_eq!((config.keepalive_timeout_s, config.workers), (None, None));
}

#[test]
fn files_that_include_each_other_end() {
    let text = "include n.conf; http { server { listen 80; } }";
    let config = config(Program::Nginx, (&["nginx", "-c", "/n.conf"], None), &[("/n.conf", text)]);
    assert_eq!(config.unread, ["/n.conf: includes are nested more than 8 deep"]);
    assert_eq!(config.listens.len(), 1);
}

#[test]
fn apache_is_read_as_debian_lays_it_out() {
    let files = [
        (
            "/etc/apache2/apache2.conf",
            "PidFile ${APACHE_RUN_DIR}/apache2.pid\nKeepAlive On\nKeepAliveTimeout \
             15\nIncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\nInclude \
             ports.conf\nIncludeOptional sites-enabled/*.conf",
        ),
        ("/etc/apache2/envvars", "export APACHE_RUN_DIR=/run/apache2$SUFFIX\nexport APACHE_P=81"),
        (
            "/etc/apache2/ports.conf",
            "Listen 80\nListen ${APACHE_P}\n<IfModule ssl_module>\nListen 443\n</IfModule>",
        ),
        ("/etc/apache2/mods-enabled/mpm.load", "LoadModule mpm_prefork_module /m.so"),
        (
            "/etc/apache2/mods-enabled/mpm.conf",
            "<IfModule mpm_prefork_module>\nMaxRequestWorkers 150\n</IfModule>",
        ),
        (
            "/etc/apache2/sites-enabled/a.conf",
            "<VirtualHost *:81>\nKeepAlive Off\n<Proxy balancer://b>\nBalancerMember \
             http://10.0.0.1:8080 ttl=30\nBalancerMember http://10.0.0.2\n</Proxy>\nProxyPass / \
             balancer://b/\nProxyPass /x !\n<Location /y>\nProxyPass http://[::1]:9/ \
             timeout=5\n</Location>\n</VirtualHost>",
        ),
    ];
    let arguments = ["/usr/sbin/apache2", "-k", "start"];
    let config = config(Program::Apache, (&arguments, Some("2.4.62")), &files);
    assert_eq!(config.unread, Vec::<String>::new());
    let on: Vec<&str> = config.listens.iter().map(|one| one.on.as_str()).collect();
    assert_eq!(on, ["[::]:80", "[::]:81"]);
    is(config.listens[0].keepalive_timeout_s.as_ref(), 15.0, "/etc/apache2/apache2.conf:3");
    is(config.listens[1].keepalive_timeout_s.as_ref(), 0.0, "/etc/apache2/sites-enabled/a.conf:2");
    is(config.listens[0].backlog.as_ref(), 511, "the default of Apache 2.4.62");
    is(config.workers.as_ref(), 150, "/etc/apache2/mods-enabled/mpm.conf:2");
    let [balancer, single] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    assert_eq!(balancer.servers, ["10.0.0.1:8080", "10.0.0.2:80"]);
    is(balancer.idle_timeout_s.as_ref(), 30.0, "/etc/apache2/sites-enabled/a.conf:4");
    assert_eq!(single.servers, ["[::1]:9"]);
    is(single.response_timeout_s.as_ref(), 5.0, "/etc/apache2/sites-enabled/a.conf:10");
    is(single.connect_timeout_s.as_ref(), 5.0, "/etc/apache2/sites-enabled/a.conf:10");
}

#[test]
fn arguments_of_redis_stand_over_its_file() {
    let arguments = ["redis-server", "/r.conf", "--port", "7000", "--tcp-backlog", "128"];
    let text = "port 6379\nbind 127.0.0.1 -::1\ntcp-keepalive 0\n# tcp-backlog 1\ntimeout 0";
    let config = config(Program::Redis, (&arguments, None), &[("/r.conf", text)]);
    let on: Vec<&str> = config.listens.iter().map(|one| one.on.as_str()).collect();
    assert_eq!(on, ["127.0.0.1:7000", "[::1]:7000"]);
    is(config.listens[0].backlog.as_ref(), 128, "the command line of PID 7");
    is(config.tcp_keepalive_s.as_ref(), 0.0, "/r.conf:3");
    is(config.workers.as_ref(), 10_000, "the default of Redis");
    // 0 is no time-out.
    assert_eq!(config.keepalive_timeout_s, None);
}

#[test]
fn a_file_of_redis_that_names_another_folder_is_not_taken() {
    let text = "port 6379\ndir /var/lib/redis\ntcp-backlog 9";
    let own = ("/run/redis.conf", "port 6379\ntcp-backlog 8\ndir ./");
    let title = ["redis-server *:6379"];
    let both = config(Program::Redis, (&title, None), &[("/etc/redis/redis.conf", text), own]);
    is(both.listens[0].backlog.as_ref(), 8, "/run/redis.conf:2");
    let other = config(Program::Redis, (&title, None), &[("/etc/redis/redis.conf", text)]);
    assert_eq!((other.listens[0].backlog.as_ref(), other.unread.len()), (None, 1));
    let here = text.replace("/var/lib/redis", "/run/");
    let same = config(Program::Redis, (&title, None), &[("/etc/redis/redis.conf", &here)]);
    is(same.listens[0].backlog.as_ref(), 9, "/etc/redis/redis.conf:3");
}

#[test]
fn a_file_of_redis_for_another_port_is_not_taken() {
    let title = ["redis-server *:7000"];
    let files = [("/etc/redis/redis.conf", "port 6379\ntcp-backlog 9")];
    let other = config(Program::Redis, (&title, None), &files);
    assert_eq!(other.listens[0].backlog, None);
    assert_eq!(other.unread.len(), 1);
    let own = config(Program::Redis, (&["redis-server *:6379"], None), &files);
    is(own.listens[0].backlog.as_ref(), 9, "/etc/redis/redis.conf:2");
}

#[test]
fn sections_of_haproxy_inherit_from_their_defaults() {
    let text = "global\n maxconn 1000 # all\ndefaults one\n mode http\n timeout client 1m\n option \
                httpclose\ndefaults two\n mode tcp\n timeout client 30s\nfrontend a from one\n bind \
                *:80,[::]:81 backlog 7\nfrontend b\n bind :82\nbackend c from one\n no option \
                httpclose\n http-reuse never\n server s1 h:1\n server s2 unix@/s";
    let arguments = ["haproxy", "-Ws", "-f", "h.cfg"];
    let config = config(Program::Haproxy, (&arguments, Some("2.6.12")), &[("/run/h.cfg", text)]);
    let on: Vec<&str> = config.listens.iter().map(|one| one.on.as_str()).collect();
    assert_eq!(on, ["0.0.0.0:80", "[::]:81", "0.0.0.0:82"]);
    is(config.listens[0].keepalive_timeout_s.as_ref(), 0.0, "/run/h.cfg:6");
    is(config.listens[1].backlog.as_ref(), 7, "/run/h.cfg:11");
    is(config.listens[2].keepalive_timeout_s.as_ref(), 30.0, "/run/h.cfg:9");
    is(config.listens[2].backlog.as_ref(), 1_000, "/run/h.cfg:2");
    let upstream: &Upstream = &config.upstreams[0];
    assert_eq!(upstream.servers, ["h:1", "/s"]);
    is(upstream.reuses.as_ref(), false, "/run/h.cfg:16");
}

#[test]
fn pools_of_php_fpm_in_several_files_are_one_server() {
    let title = ["php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)"];
    let files = [
        ("/etc/php/8.2/fpm/php-fpm.conf", "[global]\ninclude=/etc/php/8.2/fpm/pool.d/*.conf"),
        (
            "/etc/php/8.2/fpm/pool.d/a.conf",
            "[www]\nlisten = /run/$pool.sock\nlisten.backlog = -1\npm.max_children = 5",
        ),
        ("/etc/php/8.2/fpm/pool.d/b.conf", "[b]\nlisten = 9000\npm.max_children = \"7\""),
    ];
    let config = config(Program::PhpFpm, (&title, None), &files);
    assert_eq!(config.listens[0].on, "/run/www.sock");
    // It leaves the backlog to the kernel.
    assert_eq!(config.listens[0].backlog, None);
    assert_eq!(config.listens[1].on, "[::]:9000");
    assert_eq!(config.listens[1].backlog, None);
    is(config.workers.as_ref(), 12, "/etc/php/8.2/fpm/pool.d/a.conf:4");
}

#[test]
fn mariadb_reads_its_own_groups_and_derives_its_backlog() {
    let text = "[client]\nport=1\n[mariadb-10.11]\nmax-connections = 1000\n[mariadb-10.6]\nport = \
                2\n[mysqld]\nbind-address = 127.0.0.1\n!includedir /etc/mysql/conf.d/";
    let files =
        [("/etc/mysql/my.cnf", text), ("/etc/mysql/conf.d/a.cnf", "[server]\nwait_timeout=60")];
    let config = config(Program::Mariadb, (&["mariadbd"], Some("10.11.14")), &files);
    assert_eq!(config.listens[0].on, "127.0.0.1:3306");
    is(config.listens[0].backlog.as_ref(), 250, "the default of MariaDB 10.11.14");
    is(config.keepalive_timeout_s.as_ref(), 60.0, "/etc/mysql/conf.d/a.cnf:2");
    is(config.workers.as_ref(), 1_000, "/etc/mysql/my.cnf:4");
    is(config.tcp_keepalive_s.as_ref(), 7_200.0, "the default of MariaDB 10.11.14");
}

/// Words of all six languages, and what breaks their grammar.
fn hostile() -> impl Strategy<Value = String> {
    let words = "http|server|stream|upstream|location|listen|include|proxy_pass|map|backlog=|\
                 <VirtualHost|</VirtualHost>|<IfModule|Listen|Define|ProxyPass|ProxySet|\
                 BalancerMember|\\$\\{|bind|frontend|backend|defaults|from|timeout|option|\\[www\\]|\
                 \\[mysqld\\]|listen = |!include|!includedir|port|99999999999999999999|-1|1ms|\\*|\
                 unix:|http://|\"|'|\\\\|\\{|\\}|;|#|=|\n|é|\u{0}|:|\\[::|/f";
    prop::collection::vec(prop_oneof![4 => words, 1 => ".{0,8}"], 0..120)
        .prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_makes_a_parser_panic_or_grow(text in hostile(), title in hostile()) {
        for program in Program::ALL {
            for arguments in [vec!["x", "-f", "/f"], vec!["x", "/f"], vec!["nginx", "-c", "/f"],
                vec!["php-fpm: master process (/f)"], vec!["x", "--defaults-file=/f"],
                vec![title.as_str()]] {
                let arguments: Vec<&str> = arguments;
                let config = config(program, (&arguments, Some(&title)), &[("/f", &text)]);
                prop_assert!(config.listens.len() <= 256 && config.upstreams.len() <= 256);
                prop_assert!(config.unread.len() <= 16);
                for listen in &config.listens {
                    prop_assert!(listen.on.chars().count() <= 256 + 8);
                }
            }
        }
    }
}

#[test]
fn the_longest_nesting_and_the_largest_file_end() {
    let deep = "http {".repeat(100_000);
    let wide = "server { listen 1; }".repeat(40_000);
    let sections = "<VirtualHost *:1>\n".repeat(50_000);
    let variables = "Define A ${A}${A}\nDefine B ${A}\n".repeat(100);
    for text in [deep, wide, sections, variables, "\\\n".repeat(400_000), "[www\n".repeat(200_000)]
    {
        for program in Program::ALL {
            for arguments in [
                vec!["x", "-f", "/f"],
                vec!["x", "/f"],
                vec!["x", "-c", "/f"],
                vec!["php-fpm: master process (/f)"],
                vec!["x", "--defaults-file=/f"],
            ] {
                let config = config(program, (&arguments, None), &[("/f", &text)]);
                assert!(config.listens.len() <= 256 && config.upstreams.len() <= 256);
            }
        }
    }
}
