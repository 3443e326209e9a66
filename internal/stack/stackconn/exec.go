// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Program is a program that the stack host started for this connection.
type Program struct {
	c      *Conn
	id     uint32
	answer <-chan ctlproto.Frame
}

// Exec starts another program where the stack's target runs, with stdio as its standard
// input, output and error. Wait reports whether it could be started. The stack host ends
// the program when the connection ends.
func (c *Conn) Exec(ctx context.Context, e ctlproto.Exec, stdio [3]*os.File) (*Program, error) {
	body, err := e.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("starting a program: %w", err)
	}
	id, answer, err := c.send(ctx, ctlproto.CTL_EXEC, body, stdio[:])
	if err != nil {
		return nil, fmt.Errorf("starting a program: %w", err)
	}
	return &Program{c, id, answer}, nil
}

// Wait waits for the end of the program, as long as ctx allows.
func (p *Program) Wait(ctx context.Context) (ctlproto.ExecReply, error) {
	var r ctlproto.ExecReply
	var body []byte
	var err error
	select {
	case f := <-p.answer:
		body, err = reply(f, ctlproto.CTL_EXEC)
	case <-p.c.done:
		body, err = p.c.last(p.answer, ctlproto.CTL_EXEC)
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
	if err == nil {
		err = r.Unmarshal(body)
	}
	return r, err
}

// Signal sends a signal to the program or, with group, to its process group, which is
// created for it. It is no error if the program has ended.
func (p *Program) Signal(ctx context.Context, sig syscall.Signal, group bool) error {
	m := ctlproto.ExecSignal{ID: p.id, Signal: uint32(sig)}
	if group {
		m.Flags = ctlproto.CTL_EXECF_GROUP
	}
	_, err := p.c.request(ctx, ctlproto.CTL_EXEC_SIGNAL, m.Append(nil))
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("forwarding a signal: %w", err)
	}
	return nil
}
