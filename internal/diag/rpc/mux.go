// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Mux answers the questions of one connection. It answers questions with different verbs
// in parallel, and those with the same verb one after another.
type Mux struct {
	// Mux calls End when the stack host reports that the target has ended. The stack
	// continues until End returns. End may be nil.
	End func()

	mu       sync.Mutex
	handlers map[string]*handler
}

type handler struct {
	mu sync.Mutex // held while do runs
	do func(ctx context.Context, args json.RawMessage, file *os.File) (any, error)
}

// Handle makes m answer verb with do. file is nil if the question carries no descriptor;
// it is closed after do returns. An *Error of do reaches the caller unchanged. Any other
// error reaches the caller as a failure that is not the caller's mistake.
func Handle[A, R any](m *Mux, verb Verb[A, R], do func(ctx context.Context, args A, file *os.File) (R, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handlers == nil {
		m.handlers = map[string]*handler{}
	}
	m.handlers[string(verb)] = &handler{do: func(ctx context.Context, raw json.RawMessage, file *os.File) (any, error) {
		var args A
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &args); err != nil {
				return nil, Usagef("%s: %v", verb, err)
			}
		}
		return do(ctx, args, file)
	}}
}

// Serve answers questions until ctx is done or the connection ends. It returns when all
// answers are complete.
func (m *Mux) Serve(ctx context.Context, conn *stackconn.Conn) {
	var busy sync.WaitGroup
	defer busy.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case q, ok := <-conn.Questions():
			if !ok {
				return
			}
			busy.Go(func() { m.answer(ctx, conn, q) })
		}
	}
}

func (m *Mux) answer(ctx context.Context, conn *stackconn.Conn, q stackconn.Question) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := m.do(ctx, q)
	if q.File != nil {
		q.File.Close()
	}
	var r reply
	if err == nil {
		r.Result, err = json.Marshal(result)
	}
	if err != nil {
		var userError *Error
		r = reply{Error: err.Error(), Usage: errors.As(err, &userError) && userError.Usage}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return // cannot fail: all fields are strings and encoded JSON
	}
	// The caller has the same time limit. If it has disconnected, it does not need
	// the answer.
	_ = conn.Answer(context.WithoutCancel(ctx), q.Serial, 0, text)
}

func (m *Mux) do(ctx context.Context, q stackconn.Question) (any, error) {
	if q.End {
		if m.End != nil {
			m.End()
		}
		return nil, nil
	}
	var r request
	if err := json.Unmarshal(q.Text, &r); err != nil {
		return nil, Usagef("malformed request: %v", err)
	}
	m.mu.Lock()
	h := m.handlers[r.Verb]
	m.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("lklrun does not support the request %q", r.Verb)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return h.do(ctx, r.Args, q.File)
}
