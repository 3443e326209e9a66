// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/rpc"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type (
	words struct{ Words []string }
	count struct {
		N    int
		File string
	}
)

const (
	counted = rpc.Verb[words, count]("count")
	mended  = rpc.Verb[words, count]("mend")
	broken  = rpc.Verb[words, count]("break")
	stuck   = rpc.Verb[words, count]("wait")
	nobody  = rpc.Verb[words, count]("what")
)

// running starts a stack host with the host's kernel. This test is its launcher.
func running(t *testing.T, flags uint32, command ...string) *lklhost.Host {
	t.Helper()
	h := lklhost.Start(t, kit.NewNetns(t, "stack"), "", command...).Boot(t)
	if _, err := h.Conn.Go(limit(t), ctlproto.Go{Flags: flags}); err != nil {
		t.Fatal(err)
	}
	return h
}

// answering answers questions with the test's verbs. It answers a "wait" when open is
// closed.
func answering(t *testing.T, h *lklhost.Host) (open chan struct{}) {
	t.Helper()
	open = make(chan struct{})
	m := new(rpc.Mux)
	rpc.Handle(m, counted, func(_ context.Context, w words, file *os.File) (count, error) {
		c := count{N: len(w.Words)}
		if file != nil {
			b, err := io.ReadAll(file)
			if err != nil {
				return c, err
			}
			c.File = string(b)
		}
		return c, nil
	})
	rpc.Handle(m, mended, func(context.Context, words, *os.File) (count, error) {
		return count{}, fmt.Errorf("no: %w", rpc.Usagef("say it otherwise"))
	})
	rpc.Handle(m, broken, func(context.Context, words, *os.File) (count, error) {
		return count{}, errors.New("something is wrong")
	})
	rpc.Handle(m, stuck, func(ctx context.Context, _ words, _ *os.File) (count, error) {
		select {
		case <-open:
		case <-ctx.Done():
		}
		return count{N: 1}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Serve(ctx, h.Conn)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return open
}

// pipe returns the read end of a pipe that holds text.
func pipe(t *testing.T, text string) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func TestAsk(t *testing.T) {
	h := running(t, 0, "sleep", "100")
	answering(t, h)
	c := h.Dial(t)
	got, err := rpc.Do(limit(t), c, counted, words{[]string{"a", "b"}}, nil)
	if err != nil || got != (count{N: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = rpc.Do(limit(t), c, counted, words{}, pipe(t, "through three processes"))
	if err != nil || got.File != "through three processes" {
		t.Errorf("with a descriptor: %+v, %v", got, err)
	}
	// Only the stack host can report that the target has ended.
	if body, err := c.Ask(limit(t), []byte(`{"verb":"end"}`), nil); err != nil || !strings.Contains(string(body), "does not support") {
		t.Errorf("a client that tells of the end: %s, %v", body, err)
	}
	// The longest text does not fit into the socket at once.
	long := strings.Repeat("x", 60000)
	if got, err = rpc.Do(limit(t), c, counted, words{[]string{long}}, pipe(t, "y")); err != nil || got.N != 1 || got.File != "y" {
		t.Errorf("60 kB: %v", err)
	}
	if _, err = rpc.Do(limit(t), c, counted, words{[]string{long, long}}, nil); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("120 kB: %v", err)
	}
	for _, tc := range []struct {
		verb  rpc.Verb[words, count]
		want  string
		usage bool
	}{
		{mended, "no: say it otherwise", true},
		{broken, "something is wrong", false},
		{nobody, `lklrun does not support the request "what"`, false},
	} {
		var refused *rpc.Error
		if _, err := rpc.Do(limit(t), c, tc.verb, words{}, nil); !errors.As(err, &refused) || err.Error() != tc.want || refused.Usage != tc.usage {
			t.Errorf("%s: %v", tc.verb, err)
		}
	}
}

// Questions with different verbs do not wait for each other. Each descriptor arrives with
// its question, and callers that disconnect are removed.
func TestAskAtOnce(t *testing.T) {
	h := running(t, 0, "sleep", "100")
	open := answering(t, h)
	waiter, err := stackconn.Dial(limit(t), h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		_, err := rpc.Do(limit(t), waiter, stuck, words{}, nil)
		gone <- err
	}()
	var all sync.WaitGroup
	for n := range 20 {
		c := h.Dial(t)
		all.Go(func() {
			for i := range 20 {
				text := fmt.Sprintf("%d of %d", i, n)
				var file *os.File
				if want := text; i%2 == 0 {
					file = pipe(t, want)
				} else {
					text = ""
				}
				got, err := rpc.Do(limit(t), c, counted, words{make([]string, n)}, file)
				if err != nil || got.N != n || got.File != text {
					t.Errorf("%s: %+v, %v", text, got, err)
				}
			}
		})
	}
	all.Wait()
	waiter.Close()
	if err := <-gone; err == nil {
		t.Error("a question was answered that should wait")
	}
	close(open)
	if got, err := rpc.Do(limit(t), h.Dial(t), stuck, words{}, nil); err != nil || got.N != 1 {
		t.Errorf("behind one whose asker went away: %+v, %v", got, err)
	}
}

// Questions above lklrun's limit are refused immediately.
func TestAskBound(t *testing.T) {
	h := running(t, 0, "sleep", "100")
	c := h.Dial(t)
	ctx, cancel := context.WithCancel(limit(t))
	var all sync.WaitGroup
	for range ctlproto.CTL_ASKS_MAX {
		all.Go(func() { _, _ = c.Ask(ctx, []byte("{}"), nil) }) // never answered
	}
	var questions []stackconn.Question
	for range ctlproto.CTL_ASKS_MAX {
		questions = append(questions, <-h.Conn.Questions())
	}
	if _, err := c.Ask(limit(t), []byte("{}"), nil); !errors.Is(err, unix.EBUSY) {
		t.Errorf("one too many: %v", err)
	}
	q := questions[0]
	for name, tc := range map[string]struct {
		from   *stackconn.Conn
		serial uint32
		status int32
		want   error
	}{
		"from somebody else":     {c, q.Serial, 0, syscall.EPERM},
		"to no question":         {h.Conn, 1 << 30, 0, syscall.ENOENT},
		"to question 0":          {h.Conn, 0, 0, syscall.ENOENT},
		"with what is no status": {h.Conn, q.Serial, 1, syscall.EINVAL},
	} {
		if err := tc.from.Answer(limit(t), tc.serial, tc.status, nil); !errors.Is(err, tc.want) {
			t.Errorf("an answer %s: %v, want %v", name, err, tc.want)
		}
	}
	for _, q := range questions {
		if err := h.Conn.Answer(limit(t), q.Serial, 0, nil); err != nil {
			t.Errorf("question %d: %v", q.Serial, err)
		}
	}
	if err := h.Conn.Answer(limit(t), q.Serial, 0, nil); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("an answer twice: %v", err)
	}
	cancel()
	all.Wait()
}

// Unanswered questions do not block the end of lklrun.
func TestAskLauncherGone(t *testing.T) {
	h := running(t, 0, "sleep", "100")
	c := h.Dial(t)
	asked := make(chan error, 1)
	go func() {
		_, err := rpc.Do(limit(t), c, counted, words{}, nil)
		asked <- err
	}()
	<-h.Conn.Questions()
	h.Conn.Close()
	if err := <-asked; err == nil || !strings.Contains(err.Error(), "lklrun has ended") && !errors.Is(err, stackconn.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// With CTL_GOF_ASK_END, the stack continues after its target's end until lklrun agrees,
// or for at most two seconds.
func TestAskEnd(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "in vain": false} {
		t.Run(name, func(t *testing.T) {
			h := running(t, ctlproto.CTL_GOF_ASK_END, "true")
			q, ok := <-h.Conn.Questions()
			if !ok || !q.End || len(q.Text) != 0 {
				t.Fatalf("asked %q", q.Text)
			}
			began := time.Now()
			if _, err := h.Conn.Syscall(limit(t), stackconn.Call{Nr: unix.SYS_GETPID}); err != nil {
				t.Errorf("the stack has ended: %v", err)
			}
			if answered {
				if err := h.Conn.Answer(limit(t), q.Serial, 0, nil); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-h.Conn.Done():
			case <-time.After(30 * time.Second):
				t.Fatal("the stack goes on")
			}
			if took := time.Since(began); !answered && took < time.Second {
				t.Errorf("the stack ended %v after the question, unanswered", took)
			}
		})
	}
}
