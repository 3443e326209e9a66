// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Hold makes the nodes of a lab instances, which lklctl sees, while time stands still. states
// describe them, without their interfaces. The instances exist until held returns. Its context
// ends with ctx, and when a client stops an instance. The lab cannot go on afterwards, because
// clients may have changed it.
func (l *Lab) Hold(ctx context.Context, states []instance.State, held func(ctx context.Context)) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var all []*door
	defer func() {
		for _, d := range all {
			d.close()
		}
	}()
	for k, n := range l.nodes {
		state := states[k]
		for j, i := range n.conf.Interfaces {
			shown := instance.Interface{Name: fmt.Sprintf("eth%d", j), Type: "virtual"}
			for _, a := range i.Addrs {
				shown.Addr = append(shown.Addr, a.String())
			}
			state.Interfaces = append(state.Interfaces, shown)
		}
		if err := n.accept(l.now); err != nil {
			return err
		}
		d, err := open(ctx, n, &state)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	var g errgroup.Group
	for k, d := range all {
		g.Go(func() error {
			select {
			case <-d.node.ctl.Done():
				if ctx.Err() != nil {
					return nil
				}
				end()
				return l.gather(k, new([]frame)) // it has said why
			case <-ctx.Done():
				return nil
			}
		})
		d.clients.Go(func() { d.serve(ctx, end) })
	}
	held(ctx)
	end()
	return g.Wait()
}

// door is the control socket of a node.
type door struct {
	node    *node
	state   *instance.State
	dir     *instance.Dir
	l       net.Listener
	clients sync.WaitGroup
}

// open makes an instance of a node.
func open(ctx context.Context, n *node, state *instance.State) (*door, error) {
	dir, err := instance.Create(state.Name)
	if err != nil {
		return nil, err
	}
	if dir.Leftover {
		if err = undo.TakeOver(ctx, dir); err == nil {
			err = dir.Reset()
		}
		if err != nil {
			dir.Release() // the directory belongs to the earlier run
			return nil, fmt.Errorf("the earlier run %q is not cleaned up: %w", state.Name, err)
		}
	}
	d := &door{node: n, state: state, dir: dir}
	if d.l, err = net.Listen("unix", dir.File(instance.SocketFile)); err == nil {
		err = dir.WriteState(state)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *door) close() {
	if d.l != nil {
		d.l.Close()
	}
	d.clients.Wait()
	_ = d.dir.Remove() // `lklrun cleanup` removes what is left
}

// serve accepts clients until the door is closed.
func (d *door) serve(ctx context.Context, end func()) {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return
		}
		k := &client{door: d, conn: c.(*net.UnixConn), end: end, waiting: map[uint32]chan struct{}{}}
		d.clients.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			k.serve(ctx)
		})
	}
}

// client is a client of a control socket. The node answers one request after the other, and
// knows nothing of clients.
type client struct {
	*door
	conn *net.UnixConn
	end  func()
	fds  []uint64 // descriptors in the stack that it has opened

	mu      sync.Mutex // for what follows, and to write
	waiting map[uint32]chan struct{}
}

// serve answers the requests of the client until it leaves.
func (c *client) serve(ctx context.Context) {
	defer c.leave(context.WithoutCancel(ctx))
	if cred, err := stackconn.Peer(c.conn); err != nil || int(cred.Uid) != unix.Geteuid() && cred.Uid != 0 {
		return
	}
	for {
		f, err := ctlproto.ReadFrame(c.conn)
		if err != nil {
			return
		}
		if f, err = c.answer(ctx, f); err != nil {
			return
		}
		if f.Type != 0 && c.reply(f) != nil {
			return
		}
	}
}

// leave closes what the client has opened.
func (c *client) leave(ctx context.Context) {
	c.conn.Close()
	c.mu.Lock()
	for _, stop := range c.waiting {
		close(stop)
	}
	c.waiting = nil
	c.mu.Unlock()
	for _, fd := range c.fds {
		body, err := ctlproto.Syscall{Nr: unix.SYS_CLOSE, Args: [6]uint64{fd}}.Append(nil)
		if err == nil {
			_, err = c.node.ctl.Forward(ctx, ctlproto.Frame{Type: ctlproto.CTL_SYSCALL, Body: body})
		}
		if err != nil {
			return // the node has ended
		}
	}
}

func (c *client) reply(f ctlproto.Frame) error {
	b, err := f.Append(nil)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, err = c.conn.Write(b)
	}
	return err
}

// answer returns the reply to a request; without a type, it follows later.
func (c *client) answer(ctx context.Context, f ctlproto.Frame) (ctlproto.Frame, error) {
	r := ctlproto.Frame{Type: f.Type | ctlproto.CTL_REPLY, ID: f.ID}
	switch f.Type {
	case ctlproto.CTL_HELLO:
		h := c.node.ctl.Hello()
		h.Stack, h.Release = c.state.Stack, c.state.Kernel
		r.Body = h.Append(nil)
	case ctlproto.CTL_SYSCALL:
		return c.call(ctx, f)
	case ctlproto.CTL_CANCEL:
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(f.Body) == 4 {
			id := binary.LittleEndian.Uint32(f.Body)
			if stop, ok := c.waiting[id]; ok {
				delete(c.waiting, id)
				close(stop)
			}
		}
	case ctlproto.CTL_STOP:
		c.end()
	case ctlproto.CTL_STATS, ctlproto.CTL_OWNERS, ctlproto.CTL_EVENTS: // there are none
	default:
		r.Status = -int32(unix.EOPNOTSUPP)
	}
	return r, nil
}

// syscallTimeout is the place of the time limit in struct ctl_syscall.
const syscallTimeout = 8

// call makes a call in the stack.
func (c *client) call(ctx context.Context, f ctlproto.Frame) (r ctlproto.Frame, err error) {
	var timeout time.Duration
	if len(f.Body) >= syscallTimeout+4 {
		ms := f.Body[syscallTimeout : syscallTimeout+4]
		timeout = time.Duration(binary.LittleEndian.Uint32(ms)) * time.Millisecond
		clear(ms) // the node cannot wait
	}
	if r, err = c.node.ctl.Forward(ctx, f); err != nil {
		return r, err
	}
	var got ctlproto.SyscallReply
	if r.Status != 0 || got.Unmarshal(r.Body) != nil {
		return r, nil
	}
	if got.Ret == -int64(unix.EAGAIN) && timeout > 0 {
		return ctlproto.Frame{}, c.wait(r, timeout)
	}
	if len(f.Body) < syscallArgs+8 || got.Ret < 0 {
		return r, nil
	}
	switch nr := binary.LittleEndian.Uint32(f.Body); nr {
	case unix.SYS_OPENAT, unix.SYS_SOCKET, unix.SYS_ACCEPT4:
		c.fds = append(c.fds, uint64(got.Ret))
	case unix.SYS_CLOSE:
		fd := binary.LittleEndian.Uint64(f.Body[syscallArgs:])
		c.fds = slices.DeleteFunc(c.fds, func(own uint64) bool { return own == fd })
	}
	return r, nil
}

// syscallArgs is the place of the arguments in struct ctl_syscall.
const syscallArgs = 16

// wait sends a reply when the time limit has passed: nothing happens in the stack before that.
func (c *client) wait(r ctlproto.Frame, timeout time.Duration) error {
	stop := make(chan struct{})
	c.mu.Lock()
	if c.waiting[r.ID] != nil {
		c.mu.Unlock()
		return errors.New("two requests with one id")
	}
	c.waiting[r.ID] = stop
	c.mu.Unlock()
	go func() {
		select {
		case <-time.After(timeout):
			c.mu.Lock()
			delete(c.waiting, r.ID)
			c.mu.Unlock()
		case <-stop:
			interrupted := -int64(syscall.EINTR)
			binary.LittleEndian.PutUint64(r.Body, uint64(interrupted))
		}
		_ = c.reply(r) // fails if the client has left
	}()
	return nil
}
