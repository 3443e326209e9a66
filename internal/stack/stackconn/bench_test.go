// SPDX-License-Identifier: Apache-2.0

package stackconn_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

// BenchmarkCall measures the overhead of a call that does nothing.
func BenchmarkCall(b *testing.B) {
	h := lklhost.Start(b, kit.NewNetns(b, "stack"), lklhost.Library(b), "true").Boot(b)
	ctx := limit(b)
	for b.Loop() {
		if _, err := h.Conn.Syscall(ctx, stackconn.Call{Nr: unix.SYS_GETPID}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadFile measures three calls and a /proc file.
func BenchmarkReadFile(b *testing.B) {
	h := lklhost.Start(b, kit.NewNetns(b, "stack"), lklhost.Library(b), "true").Boot(b)
	ctx := limit(b)
	for b.Loop() {
		if _, err := h.Conn.ReadFile(ctx, "/proc/net/netstat"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLinks measures a netlink dump: socket, bind, request, answer, close.
func BenchmarkLinks(b *testing.B) {
	h := lklhost.Start(b, kit.NewNetns(b, "stack"), lklhost.Library(b), "true").Boot(b)
	ctx := limit(b)
	for b.Loop() {
		if _, err := stacknet.Links(ctx, h.Conn); err != nil {
			b.Fatal(err)
		}
	}
}
