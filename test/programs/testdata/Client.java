// SPDX-License-Identifier: Apache-2.0
//
// Uses Server.java by classic sockets, a selector, and HttpClient.

import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

public class Client {
	static boolean classic(String addr) throws Exception {
		byte[] sent = new byte[50000];
		new Random().nextBytes(sent);
		try (Socket s = new Socket()) {
			s.connect(new InetSocketAddress(addr, 7001), 10000);
			s.setSoTimeout(20000);
			s.setTcpNoDelay(true);
			Thread w = new Thread(() -> {
				try {
					s.getOutputStream().write(sent);
					s.shutdownOutput();
				} catch (IOException e) {
					e.printStackTrace();
				}
			});
			w.start();
			return Arrays.equals(s.getInputStream().readAllBytes(), sent);
		}
	}
	static int selector(String addr, int n) throws Exception {
		Selector sel = Selector.open();
		for (int i = 0; i < n; i++) {
			SocketChannel c = SocketChannel.open();
			c.configureBlocking(false);
			c.register(sel, SelectionKey.OP_CONNECT, ByteBuffer.wrap(("message " + i).getBytes()));
			c.connect(new InetSocketAddress(addr, 7002));
		}
		int done = 0;
		while (done < n && sel.select(20000) > 0) {
			for (var i = sel.selectedKeys().iterator(); i.hasNext();) {
				SelectionKey k = i.next();
				i.remove();
				SocketChannel c = (SocketChannel) k.channel();
				ByteBuffer b = (ByteBuffer) k.attachment();
				if (k.isConnectable()) {
					c.finishConnect();
					c.write(b.duplicate());
					k.interestOps(SelectionKey.OP_READ);
					k.attach(ByteBuffer.allocate(b.capacity()));
				} else {
					c.read(b);
					if (!b.hasRemaining()) {
						c.close();
						done++;
					}
				}
			}
		}
		return done;
	}
	static int http(String addr, int n) throws Exception {
		HttpClient c = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
		List<CompletableFuture<Boolean>> all = new ArrayList<>();
		for (int i = 0; i < n; i++) {
			String body = "body " + i;
			HttpRequest q = HttpRequest.newBuilder(URI.create("http://" + addr + ":7000/")).POST(HttpRequest.BodyPublishers.ofString(body)).build();
			all.add(c.sendAsync(q, HttpResponse.BodyHandlers.ofString()).thenApply(r -> r.body().equals(body)));
		}
		int right = 0;
		for (var f : all)
			if (f.get(20, TimeUnit.SECONDS))
				right++;
		return right;
	}
	static boolean datagram(String addr) throws Exception {
		try (DatagramSocket s = new DatagramSocket()) {
			s.setSoTimeout(20000);
			byte[] b = "datagram".getBytes();
			s.send(new DatagramPacket(b, b.length, InetAddress.getByName(addr), 7003));
			DatagramPacket p = new DatagramPacket(new byte[100], 100);
			s.receive(p);
			return new String(p.getData(), 0, p.getLength()).equals("datagram") && p.getAddress().getHostAddress().equals(addr);
		}
	}
	public static void main(String[] args) throws Exception {
		int n = 0;
		for (int i = 0; i < 20; i++)
			if (classic(args[0]))
				n++;
		System.out.println("classic " + n + " selector " + selector(args[0], 50) + " http " + http(args[0], 30) + " datagram " + datagram(args[0]));
		System.exit(0);
	}
}
