// SPDX-License-Identifier: Apache-2.0

package stackconn_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// each runs a test with the host's kernel and with our library.
func each(t *testing.T, test func(t *testing.T, h *lklhost.Host)) {
	t.Run("host", func(t *testing.T) { test(t, lklhost.OnHost(t)) })
	t.Run("library", func(t *testing.T) {
		h := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "sleep", "100").Boot(t)
		if _, err := h.Conn.Go(limit(t), ctlproto.Go{}); err != nil {
			t.Fatal(err)
		}
		test(t, h)
	})
}

func TestHello(t *testing.T) {
	c := lklhost.OnHost(t).Dial(t)
	h := c.Hello()
	if h.ABI != ctlproto.CTL_ABI_HOST || h.State != ctlproto.CTL_STATE_RUNNING || h.Stack != "host" || h.Release == "" {
		t.Errorf("hello: %+v", h)
	}
	if err := c.Err(); err != nil {
		t.Errorf("Err of an open connection: %v", err)
	}
}

func TestFiles(t *testing.T) { each(t, testFiles) }

func testFiles(t *testing.T, s *lklhost.Host) {
	c, ctx := s.Dial(t), limit(t)

	// The stack returns its own setting, not the setting of this process,
	// because its namespace is new.
	b, err := c.ReadFile(ctx, "/proc/sys/net/ipv4/ip_forward")
	if err != nil || string(b) != "0\n" {
		t.Fatalf("ip_forward: %q, %v", b, err)
	}
	if err := c.WriteFile(ctx, "/proc/sys/net/ipv4/ip_forward", []byte("1\n")); err != nil {
		t.Fatal(err)
	}
	if b, err = c.ReadFile(ctx, "/proc/sys/net/ipv4/ip_forward"); err != nil || string(b) != "1\n" {
		t.Errorf("ip_forward after writing 1: %q, %v", b, err)
	}
	if b, err = c.ReadFile(ctx, "/proc/net/dev"); err != nil || !bytes.Contains(b, []byte("lo:")) {
		t.Errorf("/proc/net/dev: %q, %v", b, err)
	}

	if _, err := c.ReadFile(ctx, "/proc/no/such"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/proc/no/such") {
		t.Errorf("a missing file: %v", err)
	}
	if err := c.WriteFile(ctx, "/proc/sys/net/ipv4/tcp_congestion_control", []byte("none-such\n")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a refused value: %v", err)
	}

	entries, err := c.ReadDir(ctx, "/sys/class/net")
	if err != nil || !slices.ContainsFunc(entries, func(e stackconn.DirEntry) bool { return e.Name == "lo" }) ||
		!slices.IsSortedFunc(entries, func(a, b stackconn.DirEntry) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("/sys/class/net: %v, %v", entries, err)
	}
	if entries, err = c.ReadDir(ctx, "/proc/sys/net"); err != nil || len(entries) < 4 || !entries[0].IsDir() {
		t.Errorf("/proc/sys/net: %v, %v", entries, err)
	}
	if _, err := c.ReadDir(ctx, "/proc/version"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("listing a file: %v", err)
	}

	// This file is larger than one read.
	var want int
	for i := range 3000 {
		want += len(fmt.Sprintln(i))
	}
	f, err := c.Open(ctx, "/proc/kallsyms", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 4096)
	total := 0
	for total < want {
		n, err := f.Read(ctx, buf)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total < want {
		t.Errorf("/proc/kallsyms ended after %d bytes", total)
	}
}

func TestMkdirMount(t *testing.T) { each(t, testMkdirMount) }

func testMkdirMount(t *testing.T, s *lklhost.Host) {
	c, ctx := s.Dial(t), limit(t)
	// The directory t.TempDir does not exist in the stack: a library has
	// its own file system.
	const dir = "/tmp/stackconn"
	for _, d := range []string{"/tmp", dir} {
		if err := c.Mkdir(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Mkdir(ctx, dir+"/proc"); err != nil {
		t.Fatal(err)
	}
	if err := c.Mkdir(ctx, dir+"/proc"); err != nil {
		t.Errorf("making what is there: %v", err)
	}
	if err := c.Mount(ctx, "tmpfs", dir+"/proc"); err != nil {
		t.Fatal(err)
	}
	b, err := c.ReadFile(ctx, "/proc/mounts")
	if err != nil || !bytes.Contains(b, []byte(dir+"/proc tmpfs")) {
		t.Errorf("not mounted: %v", err)
	}
	if err := c.Mount(ctx, "nosuchfs", dir+"/proc"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("an unknown file system: %v", err)
	}
}

// loopback returns 127.0.0.1:port as struct sockaddr_in.
func loopback(port uint16) []byte {
	b := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[4:], []byte{127, 0, 0, 1})
	return b
}

// pair returns two UDP sockets and the address of the first. pair sets up the
// namespace's lo with an ioctl, which is itself a call with a buffer.
func pair(t *testing.T, c *stackconn.Conn) (a, b *stackconn.Socket, addr []byte) {
	t.Helper()
	ctx := limit(t)
	var err error
	for _, s := range []**stackconn.Socket{&a, &b} {
		if *s, err = c.Socket(ctx, unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil {
			t.Fatal(err)
		}
		if err := (*s).Bind(ctx, loopback(0)); err != nil {
			t.Fatal(err)
		}
	}
	ifreq := make([]byte, 40) // struct ifreq, include/uapi/linux/if.h
	copy(ifreq, "lo")
	binary.NativeEndian.PutUint16(ifreq[16:], unix.IFF_UP)
	if err := a.Ioctl(ctx, unix.SIOCSIFFLAGS, ifreq); err != nil {
		t.Fatal(err)
	}
	if addr, err = a.Sockname(ctx); err != nil {
		t.Fatal(err)
	}
	return a, b, addr
}

func TestDatagrams(t *testing.T) { each(t, testDatagrams) }

func testDatagrams(t *testing.T, s *lklhost.Host) {
	c, ctx := s.Dial(t), limit(t)
	a, b, addr := pair(t, c)
	baddr, err := b.Sockname(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Receive before the datagram is sent: the call waits in the stack
	// host.
	type got struct {
		text string
		from []byte
		err  error
	}
	res := make(chan got, 1)
	go func() {
		buf := make([]byte, 100)
		n, from, err := a.RecvFrom(ctx, buf, 0)
		res <- got{string(buf[:n]), from, err}
	}()
	// A call after one that waits is still answered.
	if _, err := c.ReadFile(ctx, "/proc/version"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SendTo(ctx, []byte("hello"), 0, addr); err != nil {
		t.Fatal(err)
	}
	g := <-res
	if g.err != nil || g.text != "hello" || !bytes.Equal(g.from, baddr) {
		t.Errorf("received %q from %x (want %x), %v", g.text, g.from, baddr, g.err)
	}

	// This sendmsg has a name and two iovecs, each with its own buffer.
	iov := make([]byte, 32)
	binary.NativeEndian.PutUint64(iov[8:], 3)
	binary.NativeEndian.PutUint64(iov[24:], 4)
	msg := make([]byte, 56)
	binary.NativeEndian.PutUint32(msg[8:], uint32(len(addr)))
	binary.NativeEndian.PutUint64(msg[24:], 2)
	vec := stackconn.In(iov).Point(0, stackconn.In([]byte("one"))).Point(16, stackconn.In([]byte(" two")))
	hdr := stackconn.In(msg).Point(0, stackconn.In(addr)).Point(16, vec)
	if n, err := c.Syscall(ctx, stackconn.Call{Nr: unix.SYS_SENDMSG, Args: []any{b.FD(), hdr, 0}}); err != nil || n != 7 {
		t.Fatalf("sendmsg: %d, %v", n, err)
	}
	buf := make([]byte, 4)
	n, _, err := a.RecvFrom(ctx, buf, unix.MSG_TRUNC)
	if err != nil || n != 7 || string(buf) != "one " {
		t.Errorf("received %d bytes, %q, %v", n, buf, err)
	}
}

func TestCancel(t *testing.T) { each(t, testCancel) }

func testCancel(t *testing.T, s *lklhost.Host) {
	c := s.Dial(t)
	a, b, addr := pair(t, c)

	short, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, _, err := a.RecvFrom(short, make([]byte, 1), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if _, _, err := a.RecvFrom(ctx, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("after the cancellation: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("giving up took %v", took)
	}
	// The cancelled calls have ended: they do not receive later datagrams.
	if _, err := b.SendTo(limit(t), []byte("x"), 0, addr); err != nil {
		t.Fatal(err)
	}
	if n, _, err := a.RecvFrom(limit(t), make([]byte, 1), 0); err != nil || n != 1 {
		t.Errorf("received %d, %v", n, err)
	}
	// A call without Wait does not wait.
	if _, err := c.Syscall(limit(t), stackconn.Call{
		Nr: unix.SYS_RECVFROM, Args: []any{a.FD(), stackconn.Out(make([]byte, 1)), 1, 0, nil, nil},
	}); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("nothing to receive: %v", err)
	}
}

func TestErrors(t *testing.T) { each(t, testErrors) }

func testErrors(t *testing.T, s *lklhost.Host) {
	c, ctx := s.Dial(t), limit(t)
	if _, err := c.Socket(ctx, 250, 1, 0); !errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Errorf("an unknown family: %v", err)
	}
	if _, _, err := c.AddLink(ctx, ctlproto.LinkAdd{Kind: 99}, os.Stdin); err == nil || !strings.HasPrefix(err.Error(), "adding a link to the stack: ") {
		t.Errorf("a link of no kind: %v", err)
	}
	out := []byte("untouched")
	if _, err := c.Syscall(ctx, stackconn.Call{Nr: unix.SYS_READ, Args: []any{-1, stackconn.Out(out), len(out)}}); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a bad descriptor: %v", err)
	}
	if string(out) != "untouched" {
		t.Errorf("a failed call wrote %q", out)
	}
	for name, call := range map[string]stackconn.Call{
		"seven arguments": {Args: make([]any, 7)},
		"a string":        {Args: []any{"x"}},
		"a cut address":   {Args: []any{stackconn.In(make([]byte, 4)).Point(0, stackconn.In(nil))}},
		"an odd address":  {Args: []any{stackconn.In(make([]byte, 64)).Point(4, stackconn.In(nil))}},
		"too much":        {Args: []any{stackconn.In(make([]byte, 2<<20))}},
	} {
		if _, err := c.Syscall(ctx, call); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := c.Err(); err != nil {
		t.Errorf("refused calls ended the connection: %v", err)
	}
	if _, err := c.Log(ctx); err != nil {
		t.Errorf("log: %v", err)
	}
	if stats, err := c.Stats(ctx); err != nil || len(stats) == 0 || stats[0].Value < 2 {
		t.Errorf("stats: %v, %v", stats, err)
	}
	if owners, err := c.Owners(ctx); err != nil || len(owners) != 0 {
		t.Errorf("owners: %v, %v", owners, err)
	}
}

func TestParallel(t *testing.T) { each(t, testParallel) }

func testParallel(t *testing.T, s *lklhost.Host) {
	c, ctx := s.Dial(t), limit(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				if b, err := c.ReadFile(ctx, "/proc/sys/net/ipv4/ip_default_ttl"); err != nil || string(b) != "64\n" {
					t.Errorf("%q, %v", b, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestStopAndEvents(t *testing.T) { each(t, testStopAndEvents) }

func testStopAndEvents(t *testing.T, s *lklhost.Host) {
	c, other, ctx := s.Dial(t), s.Dial(t), limit(t)
	exits, err := c.Events(ctx, ctlproto.CTL_EV_EXIT)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := c.Events(ctx, ctlproto.CTL_EV_WARN)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(ctx, syscall.SIGTERM, time.Second); err != nil {
		t.Fatal(err)
	}
	if e, ok := <-exits; !ok || e.Kind != ctlproto.CTL_EV_EXIT || e.Arg != int64(syscall.SIGTERM) {
		t.Errorf("event %+v, %v", e, ok)
	}
	for _, ch := range []<-chan ctlproto.Event{exits, warnings} {
		select {
		case e, ok := <-ch:
			if ok {
				t.Errorf("one more event: %+v", e)
			}
		case <-ctx.Done():
			t.Fatal("the channel is not closed after the end of the connection")
		}
	}
	<-c.Done()
	if c.Err() != io.EOF {
		t.Errorf("reason of the end: %v", c.Err())
	}
	if _, err := c.ReadFile(ctx, "/proc/version"); !errors.Is(err, stackconn.ErrClosed) {
		t.Errorf("a call after the end: %v", err)
	}
	if _, err := c.Events(ctx, 1); !errors.Is(err, stackconn.ErrClosed) {
		t.Errorf("a subscription after the end: %v", err)
	}
	select {
	case <-other.Done():
	case <-ctx.Done():
		t.Error("the other connection outlives the stack host")
	}
}

func TestDescriptorsEndWithTheConnection(t *testing.T) { each(t, testDescriptorsEndWithTheConnection) }

func testDescriptorsEndWithTheConnection(t *testing.T, s *lklhost.Host) {
	first, second, ctx := s.Dial(t), s.Dial(t), limit(t)
	sock, err := first.Socket(ctx, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if first.Err() != stackconn.ErrClosed {
		t.Errorf("reason after Close: %v", first.Err())
	}
	for ctx.Err() == nil {
		_, err := second.Syscall(ctx, stackconn.Call{Nr: unix.SYS_FCNTL, Args: []any{sock.FD(), unix.F_GETFD}})
		if errors.Is(err, syscall.EBADF) {
			return
		}
	}
	t.Error("the socket outlives its connection")
}

// A stack host that cannot run reports why and closes the connection, before or after the
// greeting: its message is the error.
func TestRefused(t *testing.T) {
	for name, greeted := range map[string]bool{"before the greeting": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
			nc, err := net.FileConn(ours)
			ours.Close()
			if err != nil {
				t.Fatal(err)
			}
			refuse := func() {
				event := ctlproto.Event{Kind: ctlproto.CTL_EV_WARN, Text: "no such library"}
				b, err := ctlproto.Frame{Type: ctlproto.CTL_EVENT, Body: event.Append(nil)}.Append(nil)
				if err != nil {
					t.Error(err)
				}
				if _, err := theirs.Write(b); err != nil {
					t.Error(err)
				}
				theirs.Close()
			}
			if greeted {
				go func() {
					if _, err := ctlproto.ReadFrame(theirs); err != nil {
						t.Error(err)
					}
					refuse()
				}()
			} else {
				refuse()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err = stackconn.New(ctx, nc.(*net.UnixConn))
			var refused *stackconn.StartError
			if !errors.As(err, &refused) || refused.Words != "no such library" {
				t.Errorf("%v", err)
			}
		})
	}
}
