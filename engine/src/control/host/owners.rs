//! Users of sockets, from the tables of the kernel (proc_pid_net(5)).

use std::fs;

use spin_matcher::rule::Transport;

use crate::install::ports::Port;

/// State of a TCP connection that has ended and belongs to nobody (`TCP_TIME_WAIT`, net/tcp_states.h).
const TIME_WAIT: &str = "06";

/// Users of the sockets that have a local port, in the network namespace of this thread.
pub fn owners(port: Port) -> Vec<u32> {
    let tables = match port.transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let tables = tables.map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default());
    tables.iter().flat_map(|table| owners_in(table, port.number)).collect()
}

fn owners_in(table: &str, port: u16) -> impl Iterator<Item = u32> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid
        let words: Vec<_> = line.split_whitespace().collect();
        let (local, state, uid) = (*words.get(1)?, *words.get(3)?, *words.get(7)?);
        let number = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (number == port && state != TIME_WAIT).then(|| uid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use spin_matcher::rule::Transport;

    use super::{Port, owners, owners_in};

    #[test]
    fn lines_of_a_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:270F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0\n\
             1: 0100007F:270F 0100007F:1234 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0\n\
             2: 0100007F:2710 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 100 0\n\
             short line\n";
        assert_eq!(owners_in(table, 9999).collect::<Vec<_>>(), [1000]);
        assert_eq!(owners_in(table, 10_000).collect::<Vec<_>>(), [1001]);
        assert_eq!(owners_in(table, 1).count(), 0);
    }

    #[test]
    fn sockets_of_this_process_are_found() {
        let uid = rustix::process::getuid().as_raw();
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().map(|at| (at, Transport::Udp));
        let held = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let of = |transport, number| owners(Port { transport, number });
        assert_eq!(of(Transport::Udp, held.local_addr().expect("bound").port()), [uid]);
        assert_eq!(of(Transport::Tcp, tcp.local_addr().expect("bound").port()), [uid]);
        let (gone, _) = udp.expect("bound");
        assert_eq!(of(Transport::Udp, gone.port()), [0_u32; 0]);
    }
}
