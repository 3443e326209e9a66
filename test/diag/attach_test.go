// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/test/kit"
)

// printed counts the lines that a client prints, some of which are JSON documents. It
// does not keep them.
type printed struct {
	json  bool
	lines atomic.Int64

	mu   sync.Mutex
	rest []byte
	bad  string
}

// Write counts the lines of b.
func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if p.json && !json.Valid(line) && p.bad == "" {
			p.bad = string(line[:min(len(line), 400)])
		}
		p.lines.Add(1)
		p.rest = append([]byte{}, rest...)
	}
}

func (p *printed) wrong() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// A watcher is a client of an instance that runs until Ctrl-C.
type watcher struct {
	args []string
	out  *printed
	proc *kit.Proc
}

// watches starts verbs on the instance. Verbs with a leading + print one JSON document
// per line.
func (b *busy) watches(verbs ...string) []*watcher {
	b.Helper()
	var all []*watcher
	for _, v := range verbs {
		words, documents := strings.CutPrefix(v, "+")
		w := &watcher{args: strings.Fields(words), out: &printed{json: documents}}
		cmd := exec.Command(kit.Bin("lklctl"), append(w.args, "--name", b.Instance)...)
		cmd.Stdout = w.out
		w.proc = kit.Start(b, cmd)
		all = append(all, w)
	}
	return all
}

// web reads the live page's events until ctx is done.
func (b *busy) web(ctx context.Context, seen *atomic.Int64) *kit.Proc {
	b.Helper()
	p := kit.Start(b, exec.Command(kit.Bin("lklctl"), "web", "--listen", "0", "-o", "json", "--name", b.Instance))
	var page struct{ URL string }
	kit.WaitFor(b, "the page's address", kit.Limit, func() bool {
		out, _ := p.Output()
		return json.Unmarshal([]byte(out), &page) == nil && page.URL != ""
	})
	at, err := url.Parse(page.URL)
	if err != nil {
		b.Fatal(err)
	}
	at.Path, at.Fragment = strings.TrimSuffix(at.Path, "/")+"/api/events", ""
	q := at.Query()
	q.Set("instance", b.Instance)
	at.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s", at.Path, answer.Status)
	}
	go func() {
		defer answer.Body.Close()
		for r := bufio.NewReader(answer.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return // the test has ended
			}
			if strings.HasPrefix(line, "data:") {
				seen.Add(1)
			}
		}
	}()
	return p
}

// socket is the instance's control socket.
func (b *busy) socket() string { return filepath.Join("/run/lklrun", b.Instance, "ctl.sock") }

// frame returns a frame of the given type, with an identifier.
func frame(typ uint16, id uint32, body []byte) []byte {
	return kit.Noise{Rand: rand.New(rand.NewPCG(uint64(id), 0))}.Frame(typ, body)
}

// hello returns the greeting of a client of the given version.
func hello(version uint32) []byte {
	m := ctlproto.HelloRequest{Magic: ctlproto.CTL_MAGIC, Version: version}
	return frame(ctlproto.CTL_HELLO, 1, m.Append(nil))
}

// greeted connects to the control socket as a client of the given version.
func (b *busy) greeted(version uint32) (net.Conn, error) {
	c, err := net.Dial("unix", b.socket())
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(hello(version)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// deaf sends requests until the socket accepts no more, and never reads an answer. The
// connection stays open.
func (b *busy) deaf() {
	b.Helper()
	c, err := b.greeted(1)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() }) // lklhost may have dropped it
	asks := frame(ctlproto.CTL_EVENTS, 2, ctlproto.Events{Mask: ctlproto.CTL_EV_PROC | ctlproto.CTL_EV_SOCKET}.Append(nil))
	for range 1000 {
		asks = append(asks, frame(ctlproto.CTL_STATS, 3, nil)...)
	}
	if err := c.SetWriteDeadline(time.Now().Add(kit.Limit)); err != nil {
		b.Fatal(err)
	}
	go func() {
		for total := 0; total < 64<<20; total += len(asks) {
			if _, err := c.Write(asks); err != nil {
				return // lklhost no longer reads, as intended
			}
		}
	}()
}

// mischief connects again and again until ctx is done. Its connections end within a
// frame, send nonsense, or announce a version that does not exist.
func (b *busy) mischief(ctx context.Context, seen *atomic.Int64) error {
	rnd := kit.Noise{Rand: rand.New(rand.NewPCG(7, 7))}
	pace := time.NewTicker(5 * time.Millisecond) // this client must not be the reason for the load
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-pace.C:
		}
		version := uint32(1)
		if n%3 == 2 {
			version = 0
		}
		c, err := b.greeted(version)
		if err != nil {
			return err
		}
		stats := frame(ctlproto.CTL_STATS, 2, nil)
		switch n % 3 {
		case 0:
			_, _ = c.Write(stats[:1+rnd.IntN(len(stats)-1)]) // an error is fine: lklhost may have dropped the connection
		case 1:
			p := rnd.Bytes(200)
			p[3] |= 0x80 // longer than any frame
			_, _ = c.Write(p)
		case 2:
			if err := c.SetReadDeadline(time.Now().Add(kit.Limit)); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, c); err != nil { // an error message, then the end of the connection
				return fmt.Errorf("of a wrong version: %w", err)
			}
		}
		if err := c.Close(); err != nil {
			return err
		}
		seen.Add(1)
	}
}

//go:embed testdata/stranger_asks.py
var strangerAsks string

// stranger is a client of another user. The run directory denies this client access to
// the socket. If the client has access to the socket, lklhost refuses it.
func (b *busy) stranger() {
	b.Helper()
	says := func(want string) {
		b.Helper()
		// The program enters the directories through a descriptor that was opened as
		// root.
		r := kit.Run(b, kit.Limit, exec.Command("/usr/bin/python3", "-c", strangerAsks,
			b.socket(), fmt.Sprint(kit.OrdinaryUID), fmt.Sprintf("%x", hello(1))))
		if r.Stdout != want+"\n" {
			b.Errorf("another user: want %q: %v", want, r)
		}
	}
	says("denied")
	kit.Host.Run(b, "chmod", "666", b.socket())
	says("shut")
	kit.Host.Run(b, "chmod", "600", b.socket())
}

// TestAttach checks that ten clients that watch and capture, and others that misbehave,
// do not affect the programs of the instance. ATTACH_SECONDS=600 selects the long form.
func TestAttach(t *testing.T) {
	t.Parallel()
	seconds := kit.Setting(t, "ATTACH_SECONDS", 5)
	b := newBusy(t, "supervise")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.stranger()
	b.deaf()
	watchers := b.watches(
		"+netstat --watch=0.2 -tim -o json", "netstat --watch=0.3 -a", "+mptcp --watch=0.2 -o json", "mptcp --watch=0.5 -v",
		"+counters --watch=0.3 -o json", "counters --watch=0.5", "+top -d 0.3 -o json",
		"capture -q -i eth0 -s 128 -w "+filepath.Join(kit.Dir(t), "trace.pcapng"), "capture -q port 80")
	var events, mischiefs atomic.Int64
	page := b.web(ctx, &events)
	misled := make(chan error, 1)
	go func() { misled <- b.mischief(ctx, &mischiefs) }()

	over := time.NewTimer(time.Duration(seconds) * time.Second) // the duration of the test, not a wait for an event
	defer over.Stop()
	const size = 2 << 20
	transfers := 0
	for done := false; !done; transfers++ {
		peer := b.ServeTransfers(size)
		what := []string{"get", "put"}[transfers%2]
		mover := kit.Start(t, exec.Command(kit.Bin("lklctl"), "exec", "-n", b.Instance, "--", "/usr/bin/python3", "-c", kit.TransferClient, b.Addr, peer.Port, what, fmt.Sprint(size)))
		b.Ended(mover, peer, what, size)
		select {
		case <-over.C:
			done = true
		default:
		}
	}
	for _, w := range watchers {
		if w.args[0] == "capture" && w.args[len(w.args)-1] != "80" { // it writes to a file
			continue
		}
		b.Until(strings.Join(w.args, " "), b.target, func() bool { return w.out.lines.Load() >= 3 || !w.proc.Running() })
	}
	b.Until("events of the page, and mischief", b.target, func() bool { return events.Load() >= 3 && mischiefs.Load() >= 9 })
	cancel()
	if err := <-misled; err != nil {
		t.Errorf("mischief: %v", err)
	}
	page.Signal(syscall.SIGINT)
	for _, w := range watchers {
		running := w.proc.Running()
		if running {
			w.proc.Signal(syscall.SIGINT)
		}
		if r := w.proc.Wait(kit.Limit); !running || r.Status != 0 || w.out.wrong() != "" {
			t.Errorf("lklctl %s: was running %v; %v\n%s", strings.Join(w.args, " "), running, r, w.out.wrong())
		}
	}
	if r := page.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("lklctl web: %v", r)
	}
	t.Logf("%d s, %d transfers of %d bytes with the right sum, %d events of the page, %d connections with mischief", seconds, transfers, size, events.Load(), mischiefs.Load())
	b.end()
}
