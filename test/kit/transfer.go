// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A TransferPeer is a server that speaks MPTCP. It sends the data that a connection
// requests, or receives the connection's data.
type TransferPeer struct {
	Port  string
	Moved atomic.Int64 // bytes so far
	More  atomic.Bool  // send more than the size; after this becomes false, a fifth remains
	done  chan struct{}

	// The results of the first connection that transferred data, valid once done is
	// closed.
	sum   string
	worst time.Duration // the longest time for a megabyte
	wrong string        // the first received bytes that differ from those of TransferClient
	err   error
}

// ServeTransfers starts a TransferPeer on the server. It sends size bytes to each client
// that requests them.
func (p *PathSite) ServeTransfers(size int64) *TransferPeer {
	p.Helper()
	m := &TransferPeer{done: make(chan struct{})}
	var l net.Listener
	l, m.Port = p.Listen()
	go m.accept(l, size)
	return m
}

// ServeUploads starts a TransferPeer for one client that sends. The client's connection
// ends at a stack, which takes over the server's addresses.
//
// The host's kernel may be a Linux without mptcp-mapping-before-join.patch in
// third_party/lkl/patches, such as 6.18. It can deliver wrong bytes if a subflow joins
// while a reader has the connection locked. Such a receiver cannot check the sender.
func (p *PathSite) ServeUploads() *TransferPeer {
	p.Helper()
	Need(p.T, "socat")
	const port = 5000
	m := &TransferPeer{Port: strconv.Itoa(port), done: make(chan struct{})}
	uploads := filepath.Join(Dir(p), "uploads")
	l, err := net.Listen("unix", uploads)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = l.Close() }) // an error does not matter at the end
	go m.accept(l, 0)
	name := NewName()
	server := Start(p, p.Server.Command(Bin("lklrun"), "--name", name, "--if", p.toStack(0), "--if", p.toStack(1), "--",
		"socat", "-b262144", fmt.Sprintf("TCP-LISTEN:%d,fork", port), "UNIX-CONNECT:"+uploads))
	p.Until("the server listens", server, func() bool { return StackListens(p.T, name, port) })
	return m
}

// Serve starts the TransferPeer for a TransferClient that fetches ("get") or sends.
func (p *PathSite) Serve(what string, size int64) *TransferPeer {
	p.Helper()
	if what == "get" {
		return p.ServeTransfers(size)
	}
	return p.ServeUploads()
}

func (m *TransferPeer) accept(l net.Listener, size int64) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		go m.serve(c, size)
	}
}

// Listen makes the server listen for MPTCP connections on a port.
func (p *PathSite) Listen() (l net.Listener, port string) {
	p.Helper()
	p.Server.Do(p, func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(true)
		l, err = lc.Listen(context.Background(), "tcp", ":0")
		return err
	})
	p.Cleanup(func() { _ = l.Close() }) // an error does not matter at the end
	return l, l.Addr().String()[strings.LastIndex(l.Addr().String(), ":")+1:]
}

// serve reads the first byte of a connection: for "g" it sends, for "p" it receives, and
// otherwise it does nothing.
func (m *TransferPeer) serve(c net.Conn, size int64) {
	defer c.Close()
	what := make([]byte, 1)
	if _, err := io.ReadFull(c, what); err != nil {
		return
	}
	sum := sha256.New()
	switch what[0] {
	case 'g':
		m.err = m.send(c, sum, size)
	case 'p':
		m.err = m.take(c, sum)
	default:
		_, _ = io.Copy(io.Discard, c) // until the client disconnects
		return
	}
	m.sum = fmt.Sprintf("%x", sum.Sum(nil))
	close(m.done)
}

func (m *TransferPeer) send(c net.Conn, sum hash.Hash, size int64) error {
	from := rand.NewChaCha8([32]byte{1})
	buf := make([]byte, 1<<18)
	for left := size; left > 0; {
		n := min(left, int64(len(buf)))
		if _, err := from.Read(buf[:n]); err != nil {
			return err
		}
		sum.Write(buf[:n])
		if err := c.SetWriteDeadline(time.Now().Add(TransferLimit)); err != nil {
			return err
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
		m.Moved.Add(n)
		if left > size/5 || !m.More.Load() {
			left -= n
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c) // until the end of the stream
	return err
}

func (m *TransferPeer) take(c net.Conn, sum hash.Hash) error {
	const mark = 1 << 20 // smaller amounts do not count as progress
	buf := make([]byte, 1<<18)
	last, fresh := time.Now(), 0
	for {
		if err := c.SetReadDeadline(time.Now().Add(TransferLimit)); err != nil {
			return err
		}
		n, err := c.Read(buf)
		now := time.Now()
		if fresh += n; fresh >= mark || err != nil {
			m.worst, last, fresh = max(m.worst, now.Sub(last)), now, 0
		}
		sum.Write(buf[:n])
		m.compare(m.Moved.Load(), buf[:n])
		m.Moved.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// compare checks that b is what TransferClient sends at this position: words that count
// up, so that wrong bytes reveal their origin.
func (m *TransferPeer) compare(at int64, b []byte) {
	for i := 0; i < len(b) && m.wrong == ""; i++ {
		if pos := at + int64(i); b[i] != byte(pos/8>>(8*(pos%8))) {
			m.wrong = fmt.Sprintf("from byte %#x on, in a read of %d bytes at %#x: % x", pos, len(b), at, b[i:min(len(b), i+48)])
		}
	}
}

// Wait waits for the end of the transfer and returns its checksum, and the longest time
// for a megabyte.
func (m *TransferPeer) Wait(limit time.Duration) (sum string, worst time.Duration, err error) {
	select {
	case <-m.done:
		return m.sum, m.worst, m.err
	case <-time.After(limit):
		return "", 0, errors.New("the transfer does not end")
	}
}

//go:embed testdata/transfer.py
var TransferClient string
