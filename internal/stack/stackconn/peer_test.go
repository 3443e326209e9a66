// SPDX-License-Identifier: Apache-2.0

package stackconn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// sockets returns the two ends of a unix stream.
func sockets(t *testing.T) (client, server *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// scripted answers each request with the frames that script returns, if any.
func scripted(t *testing.T, script func(ctlproto.Frame) []ctlproto.Frame) *stackconn.Conn {
	t.Helper()
	client, server := sockets(t)
	go func() {
		for {
			f, err := ctlproto.ReadFrame(server)
			if err != nil {
				return
			}
			answers := script(f)
			if f.Type == ctlproto.CTL_HELLO && answers == nil {
				answers = []ctlproto.Frame{hello(f, 1)}
			}
			for _, a := range answers {
				b, err := a.Append(nil)
				if err != nil {
					return
				}
				if _, err := server.Write(b); err != nil {
					return
				}
			}
		}
	}()
	c, err := stackconn.New(limit(t), client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func hello(f ctlproto.Frame, version uint32) ctlproto.Frame {
	return reply(f, ctlproto.HelloReply{Version: version, Stack: "s", Release: "r", Arch: runtime.GOARCH}.Append(nil))
}

func reply(f ctlproto.Frame, body []byte) ctlproto.Frame {
	return ctlproto.Frame{Type: f.Type | ctlproto.CTL_REPLY, ID: f.ID, Body: body}
}

// result is the body of a reply to a system call.
func result(ret int64, out ...byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(ret)), out...)
}

func TestGreetingRefused(t *testing.T) {
	for name, answer := range map[string]func(ctlproto.Frame) []byte{
		"version 0":      func(f ctlproto.Frame) []byte { b, _ := hello(f, 0).Append(nil); return b },
		"a later one":    func(f ctlproto.Frame) []byte { b, _ := hello(f, 99).Append(nil); return b },
		"another reply":  func(f ctlproto.Frame) []byte { f.Type = 3; b, _ := reply(f, nil).Append(nil); return b },
		"no frame":       func(ctlproto.Frame) []byte { return []byte("HTTP/1.0 400 Bad Request\r\n\r\n") },
		"end of file":    func(ctlproto.Frame) []byte { return nil },
		"half a message": func(f ctlproto.Frame) []byte { b, _ := hello(f, 1).Append(nil); return b[:20] },
		"errno": func(f ctlproto.Frame) []byte {
			b, _ := ctlproto.Frame{Type: f.Type | ctlproto.CTL_REPLY, ID: f.ID, Status: -int32(unix.EACCES)}.Append(nil)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := sockets(t)
			go func() {
				f, err := ctlproto.ReadFrame(server)
				if err == nil {
					_, _ = server.Write(answer(f)) // the other side may have gone
				}
				server.Close()
			}()
			c, err := stackconn.New(limit(t), client)
			if err == nil {
				c.Close()
				t.Fatal("accepted")
			}
			if !strings.HasPrefix(err.Error(), "greeting the stack host: ") {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	client, _ := sockets(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := stackconn.New(ctx, client); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent stack host: %v", err)
	}
}

// A stack host that stops reading must not block its clients for ever.
func TestStuckPeer(t *testing.T) {
	client, server := sockets(t)
	go func() {
		f, err := ctlproto.ReadFrame(server)
		if err != nil {
			return
		}
		b, _ := hello(f, 1).Append(nil)
		_, _ = server.Write(b)
	}()
	c, err := stackconn.New(limit(t), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var last error
	for i := 0; i < 100 && last == nil; i++ {
		_, last = c.Syscall(ctx, stackconn.Call{Nr: 1, Args: []any{1, stackconn.In(make([]byte, 1<<20))}})
	}
	if !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("writing to a peer that does not read: %v", last)
	}
}

func TestBrokenAnswers(t *testing.T) {
	var mu sync.Mutex
	var body []byte
	var status int32
	next := func(b []byte, s int32) { // sets the reply to the next requests
		mu.Lock()
		defer mu.Unlock()
		body, status = b, s
	}
	c := scripted(t, func(f ctlproto.Frame) []ctlproto.Frame {
		if f.Type == ctlproto.CTL_HELLO {
			return nil
		}
		mu.Lock()
		r := reply(f, body)
		r.Status = status
		mu.Unlock()
		// Unexpected answers do no harm.
		return []ctlproto.Frame{{Type: r.Type, ID: f.ID + 1000}, r, r}
	})
	ctx := limit(t)
	read := stackconn.Call{Nr: 0, Args: []any{3, stackconn.Out(make([]byte, 4)), 4}}
	for name, tc := range map[string]struct {
		body   []byte
		status int32
	}{
		"no result":          {nil, 0},
		"too few bytes":      {result(4, 1, 2), 0},
		"too many":           {result(4, make([]byte, 5)...), 0},
		"bytes and an error": {result(-9, make([]byte, 4)...), 0},
		"no error number":    {result(-1 << 40), 0},
		"a positive status":  {nil, 7},
	} {
		next(tc.body, tc.status)
		if _, err := c.Syscall(ctx, read); !errors.Is(err, ctlproto.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	next(nil, -int32(unix.EIO))
	if _, err := c.Syscall(ctx, read); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "in the stack") {
		t.Errorf("a refused request: %v", err)
	}
	next([]byte("nonsense"), 0)
	if _, err := c.Owners(ctx); !errors.Is(err, ctlproto.ErrMalformed) {
		t.Errorf("owners: %v", err)
	}
	if _, err := c.Stats(ctx); !errors.Is(err, ctlproto.ErrMalformed) {
		t.Errorf("stats: %v", err)
	}
	if _, err := c.Go(ctx, ctlproto.Go{}); !errors.Is(err, ctlproto.ErrMalformed) {
		t.Errorf("go: %v", err)
	}
	next([]byte("rx.frames 12\nproc.7.Web Content.held -1\n"), 0)
	if s, err := c.Stats(ctx); err != nil || len(s) != 2 || s[1] != (stackconn.Stat{Name: "proc.7.Web Content.held", Value: -1}) {
		t.Errorf("stats: %v, %v", s, err)
	}
}

func TestLinkDescriptor(t *testing.T) {
	client, server := sockets(t)
	got := make(chan string, 1)
	go func() {
		buf, oob := make([]byte, 4096), make([]byte, 64)
		for range 2 {
			n, oobn, _, _, err := server.ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			h, err := ctlproto.ParseHeader(buf[:n])
			if err != nil {
				return
			}
			f := ctlproto.Frame{Type: h.Type, ID: h.ID}
			answer := hello(f, 1)
			if h.Type == ctlproto.CTL_LINK_ADD {
				answer = reply(f, []byte{3, 0, 0, 0, 5, 0, 0, 0})
				got <- received(oob[:oobn])
			}
			b, _ := answer.Append(nil)
			if _, err := server.Write(b); err != nil {
				return
			}
		}
	}()
	c, err := stackconn.New(limit(t), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dev, ifindex, err := c.AddLink(limit(t), ctlproto.LinkAdd{Kind: ctlproto.CTL_LINK_FRAME, MTU: 1500}, w)
	if err != nil || dev != 3 || ifindex != 5 {
		t.Fatalf("device %d, interface %d, %v", dev, ifindex, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if what := <-got; what != "" {
		t.Fatal(what)
	}
	buf := make([]byte, 10)
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "frame" {
		t.Errorf("the descriptor's other end read %q, %v", buf[:n], err)
	}
}

// received writes to the single descriptor in a control message and closes it.
func received(oob []byte) string {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return "no control message"
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return "not one descriptor"
	}
	defer unix.Close(fds[0])
	if _, err := unix.Write(fds[0], []byte("frame")); err != nil {
		return err.Error()
	}
	return ""
}

func TestEventFlood(t *testing.T) {
	const sent = 5000
	c := scripted(t, func(f ctlproto.Frame) []ctlproto.Frame {
		if f.Type != ctlproto.CTL_EVENTS {
			return nil
		}
		all := []ctlproto.Frame{reply(f, nil)}
		for range sent {
			all = append(all, ctlproto.Frame{Type: ctlproto.CTL_EVENT, ID: f.ID, Body: ctlproto.Event{Kind: ctlproto.CTL_EV_SOCKET}.Append(nil)})
		}
		// The end of the target is never lost, however slow the reader is.
		return append(all, ctlproto.Frame{Type: ctlproto.CTL_EVENT, ID: f.ID, Body: ctlproto.Event{Kind: ctlproto.CTL_EV_EXIT, Arg: 7}.Append(nil)})
	})
	ctx := limit(t)
	first, err := c.Events(ctx, ctlproto.CTL_EV_EXIT)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-first; e.Arg != 7 {
		t.Fatalf("%+v", e)
	}
	slow, err := c.Events(ctx, ctlproto.CTL_EV_EXIT|ctlproto.CTL_EV_SOCKET)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-first; e.Arg != 7 { // by now the reader slow has missed most events
		t.Fatalf("%+v", e)
	}
	seen, exits, warned := 0, 0, false
	for exits == 0 || !warned {
		select {
		case e := <-slow:
			switch e.Kind {
			case ctlproto.CTL_EV_SOCKET:
				seen++
			case ctlproto.CTL_EV_EXIT:
				exits++
			case ctlproto.CTL_EV_WARN:
				warned = strings.Contains(e.Text, "lost")
			}
		case <-ctx.Done():
			t.Fatalf("%d seen, %d ends, warned %v", seen, exits, warned)
		}
	}
	if seen == sent {
		t.Log("nothing was lost")
	}
}
