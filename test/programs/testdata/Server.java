// SPDX-License-Identifier: Apache-2.0
//
// Serves by classic sockets, a selector, and the JDK's HTTP server.

import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.concurrent.Executors;

public class Server {
	static void classic(ServerSocket l) throws Exception {
		for (;;) {
			Socket s = l.accept();
			new Thread(() -> {
				try (s) {
					s.getInputStream().transferTo(s.getOutputStream());
				} catch (IOException e) {
					e.printStackTrace();
				}
			}).start();
		}
	}
	static void selector(ServerSocketChannel l, DatagramChannel d) throws Exception {
		Selector sel = Selector.open();
		l.configureBlocking(false);
		l.register(sel, SelectionKey.OP_ACCEPT);
		d.configureBlocking(false);
		d.register(sel, SelectionKey.OP_READ, d);
		for (;;) {
			sel.select();
			for (var i = sel.selectedKeys().iterator(); i.hasNext();) {
				SelectionKey k = i.next();
				i.remove();
				ByteBuffer b = ByteBuffer.allocate(4096);
				if (k.isAcceptable()) {
					SocketChannel c = l.accept();
					if (c == null)
						continue;
					c.configureBlocking(false);
					c.register(sel, SelectionKey.OP_READ);
				} else if (k.attachment() == d) {
					SocketAddress from = d.receive(b);
					if (from != null)
						d.send(b.flip(), from);
				} else {
					SocketChannel c = (SocketChannel) k.channel();
					if (c.read(b) < 0) {
						c.close();
						continue;
					}
					b.flip();
					while (b.hasRemaining())
						c.write(b);
				}
			}
		}
	}
	public static void main(String[] args) throws Exception {
		ServerSocket l = new ServerSocket(7001);
		ServerSocketChannel c = ServerSocketChannel.open().bind(new InetSocketAddress(7002));
		DatagramChannel d = DatagramChannel.open(StandardProtocolFamily.INET).bind(new InetSocketAddress(7003));
		// Clients wait for this port, so it is opened last.
		HttpServer h = HttpServer.create(new InetSocketAddress(7000), 0);
		h.setExecutor(Executors.newFixedThreadPool(4));
		h.createContext("/", x -> {
			byte[] body = x.getRequestBody().readAllBytes();
			x.sendResponseHeaders(200, body.length);
			x.getResponseBody().write(body);
			x.close();
		});
		new Thread(() -> { try { classic(l); } catch (Exception e) { e.printStackTrace(); } }).start();
		new Thread(() -> { try { selector(c, d); } catch (Exception e) { e.printStackTrace(); } }).start();
		h.start();
	}
}
