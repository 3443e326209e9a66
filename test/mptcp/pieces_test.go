// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	_ "embed"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/take_pieces.py
var takePieces string

// TestMPTCPPieces sends small pieces over two paths. The sender alternates between the
// paths, because nothing is acknowledged yet. The pieces on the faster path fill the
// connection's memory and wait for earlier ones. When the earlier pieces arrive, the
// reader must get them, although the memory limit is reached. Otherwise, three of four
// connections stall.
func TestMPTCPPieces(t *testing.T) {
	t.Parallel()
	const conns, pieces = 4, 400
	p := kit.NewPathSite(t)
	l, port := p.Listen()
	target := p.Start("supervise", "", "/usr/bin/python3", "-c", takePieces, p.Addr, port, "4")
	var all []*net.TCPConn
	for range conns {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(kit.TransferLimit)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // if this byte stays unread, the close causes a reset
			t.Fatal(err)
		}
		all = append(all, c.(*net.TCPConn)) // Go sets TCP_NODELAY by default, so a piece is a packet
	}
	p.Until("two subflows each", target, func() bool { return onWire(p, "eth0") == conns && onWire(p, "eth1") == conns })
	pathVerb(p, "eth0", "delay", "300ms", "--direction", "in")
	pathVerb(p, "eth1", "delay", "1500ms", "--direction", "in")
	for n := range uint64(pieces) {
		for _, c := range all {
			if _, err := c.Write(binary.NativeEndian.AppendUint64(nil, n)); err != nil {
				t.Fatalf("piece %d: %v; the stack: %s\nthe server: %s", n, err, kit.Lklctl(p.T, "-n", p.Instance, "mptcp"), p.Server.Run(p, "ss", "-tinmM"))
			}
		}
	}
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.RunsOut(target)
	if r := target.Wait(kit.Limit); r.Status != 0 || r.Stdout != strings.Repeat("400\n", conns) {
		t.Errorf("of %d pieces in their order: %v", pieces, r)
	}
}
