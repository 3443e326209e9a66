// SPDX-License-Identifier: Apache-2.0

// Package rpc lets lklctl request actions that only lklrun can perform, because it has
// the privileges, the namespaces and the journal of a run. A question consists of a verb
// and its arguments, encoded as JSON, and optionally a descriptor. It is sent through the
// stack host (CTL_ASK of csrc/shared/ctl_proto.h).
//
// Each Verb defines the types of its arguments and its answer, in a file of its own. Do
// sends questions; Handle and Mux answer them.
package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// limit bounds the time for one question, on both sides.
const limit = 60 * time.Second

// answerLimit bounds the time for a question that lklrun answers without waiting for others.
const answerLimit = 10 * time.Second

// ErrNoAnswer is wrapped by the error of Do if lklrun did not answer in time.
var ErrNoAnswer = errors.New("lklrun did not answer")

// waiter is implemented by the arguments of questions whose answer can take up to limit,
// because lklrun waits for others, such as a DHCP server.
type waiter interface{ waits() bool }

// Verb is a question with arguments of type A and an answer of type R.
type Verb[A, R any] string

// request and reply are the JSON messages.
type request struct {
	Verb string          `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"`
}

type reply struct {
	Error  string          `json:"error,omitempty"`
	Usage  bool            `json:"usage,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Error is the reason why lklrun refused a question.
type Error struct {
	Text  string
	Usage bool // the caller made a mistake: exit status 2
}

// Error returns lklrun's message.
func (e *Error) Error() string { return e.Text }

// Usagef formats an error for a mistake of the caller.
func Usagef(format string, args ...any) error {
	return &Error{Text: fmt.Sprintf(format, args...), Usage: true}
}

// Do sends a question to the lklrun behind conn. It returns an *Error if lklrun refused
// the question. A caller with more questions should stop at ErrNoAnswer.
func Do[A, R any](ctx context.Context, conn *stackconn.Conn, verb Verb[A, R], args A, file *os.File) (R, error) {
	var result R
	raw, err := json.Marshal(args)
	if err != nil {
		return result, err
	}
	text, err := json.Marshal(request{string(verb), raw})
	if err != nil {
		return result, err
	}
	most := answerLimit
	if w, ok := any(args).(waiter); ok && w.waits() {
		most = limit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("%w within %v", ErrNoAnswer, most))
	defer cancel()
	body, err := conn.Ask(ctx, text, file)
	switch {
	case errors.Is(err, syscall.ENOTCONN):
		return result, errors.New("lklrun has ended, and the run is ending")
	case errors.Is(err, syscall.EOPNOTSUPP):
		return result, errors.New("this instance was started by a version of lklrun that does not support this request")
	case errors.Is(err, syscall.EBUSY):
		return result, errors.New("lklrun has too many pending requests; retry")
	case errors.Is(err, syscall.EIO):
		return result, errors.New("the stack's kernel panicked")
	case errors.Is(err, context.DeadlineExceeded):
		return result, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	case err != nil:
		return result, fmt.Errorf("request to lklrun: %w", err)
	}
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		return result, fmt.Errorf("request to lklrun: decoding the answer: %w", err)
	}
	if r.Error != "" {
		return result, &Error{r.Error, r.Usage}
	}
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return result, fmt.Errorf("request to lklrun: decoding the answer: %w", err)
	}
	return result, nil
}
