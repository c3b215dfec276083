//! How the proxies are configured: ours, nginx and HAProxy, each as its manual says it is fast.
//!
//! Owns the texts. All of them get a thread for each processor, kept connections on both sides, no log of requests, and
//! tell the upstream whom they speak for.

use std::{fmt::Write, path::Path, thread};

use super::tools;

/// The header whose value is the key, and what the requests have in it.
pub(super) const KEY_HEADER: &str = "X-Integration-Id";
pub(super) const KEY: &str = "acme";
/// Where requests go; the gateway has a route for it.
pub(super) const PATH: &str = "/v1/actions/x";

/// The gateway: a lane for each key with slots, a line and a rate, and all headers on.
pub(super) struct Ours {
    pub(super) upstream: u16,
    pub(super) max: u32,
    pub(super) max_queue: u32,
    /// How long the head of a request may take, in seconds.
    pub(super) header_timeout: u32,
    /// Whether each worker stays on a processor of its own.
    pub(super) is_pinned: bool,
}

impl Ours {
    pub(super) fn config(&self, port: u16, demo: u16) -> String {
        let Ours { upstream, max, max_queue, header_timeout, is_pinned } = self;
        // Never reached, and yet asked and told of on each request.
        let rate = 10_000_000;
        format!(
            r#"[server]
listen = "127.0.0.1:{demo}"

[gateway]
listen = "127.0.0.1:{port}"
upstreams = ["http://127.0.0.1:{upstream}"]
max_connections = 100_000
pin_workers = {is_pinned}
header_timeout = "{header_timeout}s"
drain = "100ms"

[[gateway.route]]
name = "actions"
path = "/v1/{{*rest}}"
key = {{ header = "{KEY_HEADER}" }}
max = {max}
max_queue = {max_queue}
rate = {{ limit = {rate}, period = "1m" }}
"#
        )
    }
}

/// nginx; with a limit, so many at once for each key.
pub(super) struct Nginx {
    pub(super) upstream: u16,
    pub(super) limit: Option<u32>,
}

impl Nginx {
    pub(super) fn config(&self, port: u16, folder: &Path) -> String {
        let Nginx { upstream, limit } = self;
        let (folder, threads) = (folder.display(), threads());
        let limit = limit.map_or_else(String::new, |limit| format!("limit_conn keys {limit};"));
        let variable = KEY_HEADER.to_lowercase().replace('-', "_");
        // Whoever is root may say whose the workers are; others may not, and need not.
        let mut text = if tools::is_root() { "user root;\n".to_owned() } else { String::new() };
        let _ = write!(
            text,
            "worker_processes {threads};
daemon off;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_timeout 120s;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  limit_conn_zone $http_{variable} zone=keys:10m;
  limit_conn_status 429;
  limit_conn_log_level info;
  upstream behind {{
    server 127.0.0.1:{upstream};
    keepalive 128;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      {limit}
      proxy_pass http://behind;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"
        );
        text
    }
}

/// HAProxy with a bounded number of connections to its one server, and a line before it.
pub(super) struct Haproxy {
    pub(super) upstream: u16,
    pub(super) max: u32,
    pub(super) deny: Option<Deny>,
}

/// Whom HAProxy turns away; without it, it lets wait for two seconds.
#[derive(Clone, Copy)]
pub(super) enum Deny {
    /// More than so many are in line.
    Queue(u32),
    /// So many are with the server.
    Busy(u32),
}

impl Haproxy {
    pub(super) fn config(&self, port: u16) -> String {
        let Haproxy { upstream, max, deny } = self;
        let threads = threads();
        let deny = match deny {
            None => String::new(),
            Some(Deny::Queue(length)) => {
                format!("http-request deny deny_status 429 if {{ queue(behind) gt {length} }}")
            }
            Some(Deny::Busy(count)) => {
                format!("http-request deny deny_status 429 if {{ srv_conn(behind/one) ge {count} }}")
            }
        };
        format!(
            "global
  maxconn 8000
  nbthread {threads}
defaults
  mode http
  timeout client 120s
  timeout server 120s
  timeout connect 5s
  timeout queue 2s
  option http-keep-alive
  option forwardfor
frontend front
  bind 127.0.0.1:{port} backlog 4096
  default_backend behind
backend behind
  http-reuse always
  {deny}
  server one 127.0.0.1:{upstream} maxconn {max} maxqueue 256 pool-max-conn 128
"
        )
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A request for the upstream, as bytes.
pub(super) fn request(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{KEY_HEADER}: {key}\r\n\r\n").into_bytes()
}
