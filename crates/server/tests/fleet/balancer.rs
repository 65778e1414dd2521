//! A balancer that knows nothing: each connection goes to a node by chance.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::support::Dice;

/// The balancer. The clients of the tests make a connection for each request, so that each step of a
/// walk-through is another throw.
pub(crate) struct Balancer {
    pub(crate) address: SocketAddr,
    nodes: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Balancer {
    pub(crate) async fn start(nodes: Vec<SocketAddr>) -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nodes = Arc::new(Mutex::new(nodes));
        let known = Arc::clone(&nodes);
        let mut dice = Dice::new(seed());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let chosen = dice.pick(&known.lock());
                tokio::spawn(carry(client, chosen));
            }
        });
        Balancer { address, nodes }
    }

    /// Sends what comes from now on to other nodes.
    pub(crate) fn send_to(&self, nodes: Vec<SocketAddr>) {
        *self.nodes.lock() = nodes;
    }
}

/// Bytes both ways, untouched, until either end has gone.
async fn carry(mut client: TcpStream, node: SocketAddr) {
    let Ok(mut node) = TcpStream::connect(node).await else { return };
    let _ = client.set_nodelay(true);
    let _ = node.set_nodelay(true);
    let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
}

/// Another one for each run, unless one is named.
fn seed() -> u64 {
    let named = std::env::var("DEADSTOP_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = named.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos())
    });
    // Shown with what a failing case has printed.
    println!("the balancer's seed: DEADSTOP_SEED={seed}");
    seed
}
