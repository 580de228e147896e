//! Do we read the settings with which real servers run? Each is started with planted values.
//!
//! The second witness is the kernel: the limit of each listener's accept queue is the backlog that
//! was read, or `net.core.somaxconn`.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::process::{kill_group, uid};
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_live::doctor::servers::configured;
use tcptoll_live::doctor::{Program, ServerConfig, Sourced};

use crate::support::{Folder, lacks};

/// A server that ends with its group when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        kill_group(self.0.id());
        let _ = self.0.wait();
    }
}

fn start(folder: &Folder, program: &str, arguments: &[&str], ports: &[u16]) -> Server {
    let log = folder.file("log");
    let output = fs::File::create(&log).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.file("")).process_group(0).stdin(Stdio::null());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdout(output.try_clone().unwrap()).stderr(output);
    let mut server = Server(command.spawn().unwrap());
    let begun = Instant::now();
    for &port in ports {
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let text = || fs::read_to_string(&log).unwrap_or_default();
            let ended = server.0.try_wait().unwrap();
            assert!(ended.is_none(), "{program} ended: {ended:?}: {}", text());
            assert!(begun.elapsed() < Duration::from_mins(1), "{program}: {}", text());
            // Not for luck: it is asked again until it answers or time is up.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    server
}

/// Ports that nobody listens on now.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// The configuration of this server, read once; its workers are no servers of their own.
fn read(server: &Server, program: Program) -> ServerConfig {
    let group = i32::try_from(server.0.id()).unwrap();
    let mut own = configured(&[]).into_iter().filter(|one| group_of(one.pid) == Some(group));
    let config = own.next().expect("the server is found");
    assert!(own.next().is_none(), "only its main process is a server");
    assert_eq!((config.program, config.pid), (program, server.0.id()));
    assert_eq!(config.unread, Vec::<String>::new());
    config
}

fn group_of(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}

/// The kernel's limit of each queue is the backlog as it was read.
fn check_backlogs(config: &ServerConfig, expected: usize) {
    let somaxconn = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let somaxconn: u64 = somaxconn.trim().parse().unwrap();
    let kernel = SockDiag::open().unwrap().listeners().unwrap();
    let mut checked = 0;
    for listen in &config.listens {
        let (Some(port), Some(backlog)) = (listen.port(), &listen.backlog) else { continue };
        let limits = kernel.iter().filter(|one| one.address.port() == port);
        let limits: Vec<u64> = limits.map(|one| u64::from(one.accept_queue_limit)).collect();
        assert!(!limits.is_empty(), "{} is listened on", listen.on);
        let limit = backlog.value.min(somaxconn);
        assert!(limits.iter().all(|&one| one == limit), "{listen:?}: {limits:?}");
        checked += 1;
    }
    assert_eq!(checked, expected, "{:?}", config.listens);
}

#[track_caller]
fn planted<T: PartialEq + std::fmt::Debug + Copy>(
    value: Option<&Sourced<T>>,
    expected: T,
    file: &Path,
    line: u32,
) {
    let value = value.expect("it is read");
    assert_eq!(value.value, expected);
    assert_eq!((value.at.file.as_str(), value.at.line), (&*file.to_string_lossy(), Some(line)));
}

#[test]
fn nginx_is_read_with_its_included_files_and_its_upstreams() {
    if lacks(&["nginx"]) {
        return;
    }
    let (folder, [port, plain]) = (Folder::new(), free_ports());
    let here = folder.path("");
    let here = here.trim_end_matches('/');
    let (main, site) = (folder.file("nginx.conf"), folder.file("sites/own.conf"));
    fs::create_dir(folder.file("sites")).unwrap();
    let text = format!(
        "worker_processes 2;\npid {here}/pid;\nevents {{ worker_connections 300; }}\nhttp {{\n\
         access_log off; client_body_temp_path {here}; proxy_temp_path {here};\n\
         fastcgi_temp_path {here}; uwsgi_temp_path {here}; scgi_temp_path {here};\n\
         keepalive_timeout 33s;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         include sites/*.conf;\n}}\n"
    );
    fs::write(&main, text).unwrap();
    let text = format!(
        "upstream app {{\n  server 127.0.0.1:{plain};\n  keepalive 16;\n}}\nserver {{\n  listen \
         127.0.0.1:{port} backlog=77 rcvbuf=32k so_keepalive=90s::;\n  location / {{ proxy_pass \
         http://app; }}\n  location /lost {{\n    proxy_set_header Host x;\n    proxy_pass \
         http://app/;\n  }}\n}}\nserver {{ listen 127.0.0.1:{plain}; keepalive_timeout 5; return \
         204; }}\n"
    );
    fs::write(&site, text).unwrap();
    let arguments = ["-c", &folder.path("nginx.conf"), "-e", &folder.path("error"), "-g"];
    let arguments = [&arguments[..], &["daemon off; user root;"]].concat();
    let server = start(&folder, "nginx", &arguments, &[port, plain]);
    let config = read(&server, Program::Nginx);
    check_backlogs(&config, 2);
    assert!(config.version.as_deref().is_some_and(|version| version.starts_with("1.")));
    planted(config.workers.as_ref(), 600, &main, 3);
    planted(config.keepalive_timeout_s.as_ref(), 5.0, &site, 13);
    let listen = &config.listens[0];
    planted(listen.backlog.as_ref(), 77, &site, 6);
    planted(listen.keepalive_timeout_s.as_ref(), 33.0, &main, 7);
    planted(listen.tcp_keepalive_s.as_ref(), 90.0, &site, 6);
    let buffers = listen.buffers.as_ref().unwrap();
    planted(buffers.receive.as_ref(), 32_768, &site, 6);
    assert!(config.listens[1].backlog.as_ref().unwrap().at.is_default());
    let [kept, lost] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    planted(kept.idle_connections.as_ref(), 16, &site, 3);
    planted(kept.reuses.as_ref(), true, &main, 9);
    // It sets a header of its own, so that it inherits none.
    let default = lost.reuses.as_ref().unwrap();
    assert!(default.at.is_default());
    assert_eq!(lost.servers, [format!("127.0.0.1:{plain}")]);
}

#[test]
fn apache_is_read_with_its_variables_and_its_proxied_servers() {
    if lacks(&["apache2"]) {
        return;
    }
    let (folder, [port]) = (Folder::new(), free_ports());
    let (main, part) = (folder.file("apache2.conf"), folder.file("part.conf"));
    let modules = "/usr/lib/apache2/modules";
    let text = format!(
        "ServerRoot {here}\nServerName localhost\nPidFile {here}/pid\nErrorLog {here}/error\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         LoadModule proxy_module {modules}/mod_proxy.so\n\
         LoadModule proxy_http_module {modules}/mod_proxy_http.so\n\
         Define TIME 700ms\nListen 127.0.0.1:{port}\nIncludeOptional none/*.conf\n\
         <IfModule mpm_prefork_module>\nMaxRequestWorkers 9\n</IfModule>\nInclude part.conf\n",
        here = folder.path("").trim_end_matches('/')
    );
    fs::write(&main, text).unwrap();
    fs::write(
        &part,
        "ListenBacklog 66\nKeepAliveTimeout ${TIME}\nMaxKeepAliveRequests 9\n<IfModule \
         mpm_event_module>\n  MaxRequestWorkers 50\n</IfModule>\nSendBufferSize 65536\nProxyPass /a \
         http://127.0.0.1:9/ ttl=8 connectiontimeout=300ms keepalive=On\nProxyPass /b \
         http://127.0.0.1:10/ disablereuse=On\n",
    )
    .unwrap();
    let arguments = ["-f", &folder.path("apache2.conf"), "-DFOREGROUND"];
    let server = start(&folder, "apache2", &arguments, &[port]);
    let config = read(&server, Program::Apache);
    check_backlogs(&config, 1);
    planted(config.listens[0].backlog.as_ref(), 66, &part, 1);
    planted(config.keepalive_timeout_s.as_ref(), 0.7, &part, 2);
    planted(config.keepalive_requests.as_ref(), 9, &part, 3);
    planted(config.workers.as_ref(), 50, &part, 5);
    planted(config.buffers.as_ref().unwrap().send.as_ref(), 65_536, &part, 7);
    let [kept, closed] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    planted(kept.idle_timeout_s.as_ref(), 8.0, &part, 8);
    planted(kept.connect_timeout_s.as_ref(), 0.3, &part, 8);
    planted(kept.probes.as_ref(), true, &part, 8);
    planted(closed.reuses.as_ref(), false, &part, 9);
}

#[test]
fn redis_is_read_though_its_title_hides_its_arguments() {
    if lacks(&["redis-server"]) {
        return;
    }
    let (folder, [port]) = (Folder::new(), free_ports());
    let (main, part) = (folder.file("redis.conf"), folder.file("part.conf"));
    let text = format!("bind 127.0.0.1\nport {port}\nsave \"\"\ninclude part.conf\ntimeout 44\n");
    fs::write(&main, text).unwrap();
    fs::write(&part, "tcp-backlog 55\ntcp-keepalive 60\nmaxclients 100\n").unwrap();
    let server = start(&folder, "redis-server", &["redis.conf"], &[port]);
    let config = read(&server, Program::Redis);
    check_backlogs(&config, 1);
    planted(config.listens[0].backlog.as_ref(), 55, &part, 1);
    planted(config.tcp_keepalive_s.as_ref(), 60.0, &part, 2);
    planted(config.workers.as_ref(), 100, &part, 3);
    planted(config.keepalive_timeout_s.as_ref(), 44.0, &main, 5);
}

#[test]
fn haproxy_is_read_with_its_defaults_and_its_servers() {
    if lacks(&["haproxy"]) {
        return;
    }
    let (folder, [port, other]) = (Folder::new(), free_ports());
    let main = folder.file("haproxy.cfg");
    let text = format!(
        "global\n  maxconn 200\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect \
         1500\n  timeout server 10s\n  timeout http-keep-alive 3s\nfrontend web\n  bind \
         127.0.0.1:{port}\n  backlog 64\n  maxconn 100\n  default_backend app\nbackend app\n  \
         timeout queue 2s\n  server a 127.0.0.1:9 pool-max-conn 5\nlisten \
         closing\n  bind 127.0.0.1:{other}\n  option http-server-close\n  server b 127.0.0.1:10\n"
    );
    fs::write(&main, text).unwrap();
    let arguments = ["-W", "-db", "-f", &folder.path("haproxy.cfg")];
    let server = start(&folder, "haproxy", &arguments, &[port, other]);
    let config = read(&server, Program::Haproxy);
    check_backlogs(&config, 2);
    planted(config.workers.as_ref(), 200, &main, 2);
    planted(config.listens[0].backlog.as_ref(), 64, &main, 11);
    planted(config.listens[0].workers.as_ref(), 100, &main, 12);
    planted(config.keepalive_timeout_s.as_ref(), 3.0, &main, 8);
    let [app, closing] = &config.upstreams[..] else { panic!("{:?}", config.upstreams) };
    planted(app.queue_timeout_s.as_ref(), 2.0, &main, 15);
    planted(app.idle_connections.as_ref(), 5, &main, 16);
    planted(app.connect_timeout_s.as_ref(), 1.5, &main, 6);
    assert!(app.reuses.as_ref().is_some_and(|reuses| reuses.value));
    planted(closing.reuses.as_ref(), false, &main, 19);
}

#[test]
fn pools_of_php_fpm_are_read_by_the_file_in_its_title() {
    if lacks(&["php-fpm8.2"]) {
        return;
    }
    let (folder, [port, other]) = (Folder::new(), free_ports());
    let (main, pool) = (folder.file("php-fpm.conf"), folder.file("pool/own.conf"));
    fs::create_dir(folder.file("pool")).unwrap();
    let here = folder.path("");
    let here = here.trim_end_matches('/');
    let text = format!("[global]\nerror_log = {here}/error\ninclude={here}/pool/*.conf\n");
    fs::write(&main, text).unwrap();
    let user = if uid() == 0 { "user = nobody\n" } else { "; user = nobody\n" };
    let text = format!(
        "[own]\n{user}listen = 127.0.0.1:{port}\nlisten.backlog = 33 ; small\npm = static\n\
         pm.max_children = 2\nrequest_terminate_timeout = 1m\n[other]\n{user}listen = \
         127.0.0.1:{other}\npm = static\npm.max_children = 1\n"
    );
    fs::write(&pool, text).unwrap();
    let arguments = ["-F", "-y", &folder.path("php-fpm.conf")];
    let server = start(&folder, "php-fpm8.2", &arguments, &[port, other]);
    let config = read(&server, Program::PhpFpm);
    check_backlogs(&config, 1);
    let [own, second] = &config.listens[..] else { panic!("{:?}", config.listens) };
    planted(own.backlog.as_ref(), 33, &pool, 4);
    planted(own.workers.as_ref(), 2, &pool, 6);
    planted(own.request_timeout_s.as_ref(), 60.0, &pool, 7);
    assert_eq!(own.section.as_deref(), Some("own"));
    assert_eq!(second.backlog, None, "left to the kernel");
    assert_eq!(config.workers.as_ref().map(|workers| workers.value), Some(3));
}

#[test]
fn mariadb_is_read_with_its_groups_and_its_arguments() {
    if lacks(&["mariadbd"]) {
        return;
    }
    let (folder, [port]) = (Folder::new(), free_ports());
    let (main, part) = (folder.file("my.cnf"), folder.file("parts/own.cnf"));
    fs::create_dir_all(folder.file("parts")).unwrap();
    fs::create_dir(folder.file("data")).unwrap();
    let here = folder.path("");
    let here = here.trim_end_matches('/');
    let text = format!(
        "[client]\nport = 1\n[mysqld]\nwait-timeout = 66\nport = {port}\n!includedir {here}/parts\n"
    );
    fs::write(&main, text).unwrap();
    fs::write(&part, "[mariadb]\nmax_connections = 40\ntcp_keepalive_time = 120\n").unwrap();
    let user = if uid() == 0 { "--user=root" } else { "--loose-unused" };
    let defaults = format!("--defaults-file={here}/my.cnf");
    let data = format!("--datadir={here}/data");
    let socket = format!("--socket={here}/socket");
    let pid = format!("--pid-file={here}/pid");
    let arguments = [&defaults, &data, &socket, &pid].map(String::as_str);
    let others = ["--bind-address=127.0.0.1", "--back-log=44", "--skip-grant-tables"];
    let smaller = ["--skip-innodb", "--default-storage-engine=Aria", user];
    let arguments = [&arguments[..], &others, &smaller].concat();
    let server = start(&folder, "mariadbd", &arguments, &[port]);
    let config = read(&server, Program::Mariadb);
    check_backlogs(&config, 1);
    let backlog = config.listens[0].backlog.as_ref().unwrap();
    assert_eq!(backlog.value, 44);
    assert_eq!(backlog.at.file, format!("the command line of PID {}", config.pid));
    planted(config.keepalive_timeout_s.as_ref(), 66.0, &main, 4);
    planted(config.workers.as_ref(), 40, &part, 2);
    planted(config.tcp_keepalive_s.as_ref(), 120.0, &part, 3);
}

#[test]
fn a_file_that_may_not_be_read_is_named_and_gives_no_default() {
    if lacks(&["redis-server"]) {
        return;
    }
    // Its title hides the name of the file, and no usual file has this port.
    let (folder, [port]) = (Folder::new(), free_ports());
    let own = ["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"].map(String::from);
    let arguments = own.each_ref().map(String::as_str);
    let server = start(&folder, "redis-server", &arguments, &[port]);
    // It sets its title a moment after it listens.
    let arguments = || fs::read_to_string(format!("/proc/{}/cmdline", server.0.id())).unwrap();
    let begun = Instant::now();
    while arguments().contains("--save") {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", arguments());
        std::thread::sleep(Duration::from_millis(5));
    }
    let config = configured(&[]).into_iter().find(|one| one.pid == server.0.id()).unwrap();
    assert!(config.unread[0].contains("hides its arguments"), "{:?}", config.unread);
    assert_eq!(config.listens[0].on, SocketAddr::from(([127, 0, 0, 1], port)).to_string());
    assert_eq!(config.listens[0].backlog, None);
    assert_eq!((config.workers, config.tcp_keepalive_s), (None, None));
}
