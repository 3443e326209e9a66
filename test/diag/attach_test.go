// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

//go:embed testdata/stranger_asks.py
var strangerAsks string

// stranger is a client of another user. The run directory denies this client access to
// the socket. If the client has access to the socket, lklhost refuses it.
func (b *busy) stranger() {
	b.Helper()
	hello := kit.Noise{Rand: rand.New(rand.NewPCG(1, 0))}.Frame(ctlproto.CTL_HELLO, ctlproto.HelloRequest{Magic: ctlproto.CTL_MAGIC, Version: 1}.Append(nil))
	says := func(want string) {
		b.Helper()
		// The program enters the directories through a descriptor that was opened as
		// root.
		r := kit.Run(b, kit.Limit, exec.Command("/usr/bin/python3", "-c", strangerAsks,
			b.socket(), fmt.Sprint(kit.OrdinaryUID), fmt.Sprintf("%x", hello)))
		if r.Stdout != want+"\n" {
			b.Errorf("another user: want %q: %v", want, r)
		}
	}
	says("denied")
	kit.Host.Run(b, "chmod", "666", b.socket())
	says("shut")
	kit.Host.Run(b, "chmod", "600", b.socket())
}

// TestAttach checks that ten clients that watch and capture do not affect the programs of the
// instance, and that another user is refused. ATTACH_SECONDS=600 selects the long form.
func TestAttach(t *testing.T) {
	t.Parallel()
	seconds := kit.Setting(t, "ATTACH_SECONDS", 5)
	b := newBusy(t, "supervise")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.stranger()
	watchers := b.watches(
		"+netstat --watch=0.2 -tim -o json", "netstat --watch=0.3 -a", "+mptcp --watch=0.2 -o json", "mptcp --watch=0.5 -v",
		"+counters --watch=0.3 -o json", "counters --watch=0.5", "+top -d 0.3 -o json",
		"capture -q -i eth0 -s 128 -w "+filepath.Join(kit.Dir(t), "trace.pcapng"), "capture -q port 80")
	var events atomic.Int64
	page := b.web(ctx, &events)

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
	b.Until("events of the page", b.target, func() bool { return events.Load() >= 3 })
	cancel()
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
	t.Logf("%d s, %d transfers of %d bytes with the right sum, %d events of the page", seconds, transfers, size, events.Load())
	b.end()
}
