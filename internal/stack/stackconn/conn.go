// SPDX-License-Identifier: Apache-2.0

// Package stackconn connects to a running stack: it is a client of the control socket
// (internal/stack/ctlproto). A Conn makes requests and system calls. Files, directories,
// sockets and a transport for github.com/mdlayher/netlink are built on these calls, so
// that the packages that use them are ordinary Go.
//
// All methods may be called from several goroutines at once. Each waits as long as its
// context allows; if the context has no deadline, a limit of the method applies. An error
// number of the stack or its host is found with errors.Is(err, syscall.ENOENT) and the
// like.
package stackconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// ErrClosed is wrapped by errors that occur because the connection has ended.
var ErrClosed = errors.New("the connection to the stack host is closed")

// ErrNoAnswer is wrapped by errors that occur because the stack host did not answer in
// time, although the connection is still open.
var ErrNoAnswer = errors.New("the stack host does not answer")

const (
	// answerLimit bounds the wait for a reply to a request that does not wait in the
	// stack. It applies to callers whose context has no deadline.
	answerLimit = 30 * time.Second

	// cancelLimit bounds the wait for the result of a cancelled call. Without this
	// wait, the result of a call that nevertheless succeeded would be lost, and with
	// it the descriptor that the call opened.
	cancelLimit = time.Second
)

// Conn is a connection to a stack host.
type Conn struct {
	sock  *net.UnixConn
	hello ctlproto.HelloReply
	limit time.Duration // of LimitAnswers
	netns bool          // Netns has chosen a namespace
	inbox inbox         // used by receive only
	asked chan Question // questions to lklrun

	writing sync.Mutex // held while a frame is written

	mu      sync.Mutex
	lastID  uint32
	waiting map[uint32]chan ctlproto.Frame // by request id
	subs    map[*subscriber]struct{}
	mask    uint32 // of the current subscription
	words   string // message of the stack host before the first subscription
	err     error  // why the connection has ended
	done    chan struct{}
}

// Dial connects to the control socket at path, which this user or root must serve.
func Dial(ctx context.Context, path string) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connecting to the stack host: %w", err)
	}
	c := nc.(*net.UnixConn)
	if err := CheckPeer(c); err != nil {
		c.Close()
		return nil, fmt.Errorf("connecting to the stack host: %w", err)
	}
	return New(ctx, c)
}

// StartError is the reason why a stack host ended instead of answering the greeting.
// The stack host sends it as a warning before it ends.
type StartError struct{ Words string }

// Error returns the stack host's message.
func (e *StartError) Error() string { return e.Words }

// ExitStatus is Usage: for example, the library is not a stack, or namespaces are not available.
func (e *StartError) ExitStatus() int { return exit.Usage }

// New makes a connection from a socket to a stack host, and greets the stack host. The
// connection owns the socket from then on, even if New fails. The error is a
// *StartError if the stack host said why it cannot run.
func New(ctx context.Context, sock *net.UnixConn) (*Conn, error) {
	c := &Conn{
		sock:    sock,
		inbox:   inbox{sock: sock},
		asked:   make(chan Question, ctlproto.CTL_ASKS_MAX),
		waiting: map[uint32]chan ctlproto.Frame{},
		subs:    map[*subscriber]struct{}{},
		done:    make(chan struct{}),
	}
	go c.receive()
	if err := c.greet(ctx); err != nil {
		if errors.Is(err, ErrClosed) {
			<-c.done // all its messages have been read by then
		}
		c.Close()
		c.mu.Lock()
		words := c.words
		c.mu.Unlock()
		if words != "" {
			return nil, &StartError{words}
		}
		return nil, fmt.Errorf("greeting the stack host: %w", err)
	}
	return c, nil
}

func (c *Conn) greet(ctx context.Context) error {
	h, err := c.Refresh(ctx)
	if err != nil {
		return err
	}
	c.hello = h
	return nil
}

// Refresh updates the result of Hello, because state and target can change.
func (c *Conn) Refresh(ctx context.Context) (ctlproto.HelloReply, error) {
	req := ctlproto.HelloRequest{Magic: ctlproto.CTL_MAGIC, Version: ctlproto.CTL_VERSION}
	body, err := c.request(ctx, ctlproto.CTL_HELLO, req.Append(nil))
	if err != nil {
		return ctlproto.HelloReply{}, err
	}
	var h ctlproto.HelloReply
	if err := h.Unmarshal(body); err != nil {
		return h, err
	}
	if h.Version == 0 || h.Version > ctlproto.CTL_VERSION {
		return h, fmt.Errorf("it uses version %d of the control protocol, and this program uses %d", h.Version, ctlproto.CTL_VERSION)
	}
	return h, nil
}

// Hello returns the stack host's reply to the greeting.
func (c *Conn) Hello() ctlproto.HelloReply { return c.hello }

// LimitAnswers bounds the wait for each reply, even if the context has a later deadline. A
// call that waits in the stack has this time in addition. Call it before other methods.
func (c *Conn) LimitAnswers(limit time.Duration) { c.limit = limit }

// Done is closed when either side has ended the connection.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended: nil while it is open, io.EOF if the stack host
// closed it, ErrClosed after Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. The stack host closes the descriptors that its calls have
// opened.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	return nil
}

// end closes the connection once, with err as the reason.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.done)
	for s := range c.subs {
		s.close()
	}
	c.subs = nil
	c.mu.Unlock()
	c.sock.Close()
}

// receive distributes incoming frames until the connection ends.
func (c *Conn) receive() {
	defer c.inbox.close()
	defer close(c.asked)
	for {
		f, err := ctlproto.ReadFrame(&c.inbox)
		pushed := false
		if err == nil {
			pushed, err = c.pushed(f)
		}
		if err != nil {
			c.end(err)
			return
		}
		if pushed {
			continue
		}
		c.mu.Lock()
		answer, ok := c.waiting[f.ID]
		delete(c.waiting, f.ID)
		c.mu.Unlock()
		if ok { // otherwise nobody waits for it any more
			answer <- f
		}
	}
}

// pushed handles f if it is not a reply, and reports whether it was handled.
func (c *Conn) pushed(f ctlproto.Frame) (bool, error) {
	switch f.Type {
	case ctlproto.CTL_EVENT:
		return true, c.publish(f)
	case ctlproto.CTL_ASKED:
		return true, c.question(f)
	}
	return false, nil
}

// send writes a request and returns its id and the channel of its reply.
func (c *Conn) send(ctx context.Context, typ uint16, body []byte, files []*os.File) (uint32, <-chan ctlproto.Frame, error) {
	all := []ctlproto.Frame{{Type: typ, Body: body}}
	answers, err := c.sendAll(ctx, all, files)
	if err != nil {
		return 0, nil, err
	}
	return all[0].ID, answers[0], nil
}

// sendAll writes requests with one system call, sets their ids, and returns the channels of
// their replies.
func (c *Conn) sendAll(ctx context.Context, all []ctlproto.Frame, files []*os.File) (answers []<-chan ctlproto.Frame, err error) {
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, gone(err)
	}
	for i := range all {
		answer := make(chan ctlproto.Frame, 1)
		c.lastID++
		all[i].ID = c.lastID
		c.waiting[c.lastID] = answer
		answers = append(answers, answer)
	}
	c.mu.Unlock()
	if err := c.write(ctx, all, files); err != nil {
		for _, f := range all {
			c.forget(f.ID)
		}
		return nil, err
	}
	return answers, nil
}

func (c *Conn) forget(id uint32) {
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
}

// write sends frames, with descriptors beside them.
func (c *Conn) write(ctx context.Context, all []ctlproto.Frame, files []*os.File) error {
	var b []byte
	for _, f := range all {
		var err error
		if b, err = f.Append(b); err != nil {
			return err
		}
	}
	return c.writeWith(ctx, b, files, nil)
}

// writeWith sends b with fds and the descriptors of files.
func (c *Conn) writeWith(ctx context.Context, b []byte, files []*os.File, fds []int) error {
	if len(files) == 0 {
		var rights []byte
		if len(fds) > 0 {
			rights = syscall.UnixRights(fds...)
		}
		return c.writeBytes(ctx, b, rights)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	// While Control runs, the descriptor cannot be closed. It must not become
	// blocking, which File.Fd would cause.
	var werr error
	err = raw.Control(func(fd uintptr) {
		werr = c.writeWith(ctx, b, files[1:], append(fds, int(fd)))
	})
	return errors.Join(err, werr)
}

func (c *Conn) writeBytes(ctx context.Context, b, rights []byte) error {
	limit, late := time.Now().Add(answerLimit), ErrNoAnswer
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit, late = d, context.DeadlineExceeded
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.sock.SetWriteDeadline(limit); err != nil {
		return gone(err)
	}
	total := 0
	for total < len(b) {
		var n int
		var err error
		if total == 0 && rights != nil {
			n, _, err = c.sock.WriteMsgUnix(b, rights, nil)
		} else {
			n, err = c.sock.Write(b[total:])
		}
		total += n
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if total == 0 {
				return late
			}
			err = fmt.Errorf("a request was cut off: %w", late)
		}
		if errors.Is(err, syscall.EPIPE) {
			return gone(err) // receive reads the remaining data, then ends
		}
		// A partly written frame cannot be taken back.
		c.end(err)
		return gone(err)
	}
	return nil
}

// request makes one request and returns the body of its reply.
func (c *Conn) request(ctx context.Context, typ uint16, body []byte, files ...*os.File) ([]byte, error) {
	ctx, cancel := c.limited(ctx, 0)
	defer cancel()
	return c.exchange(ctx, typ, body, files...)
}

// exchange makes one request, as request does, and waits until ctx ends.
func (c *Conn) exchange(ctx context.Context, typ uint16, body []byte, files ...*os.File) ([]byte, error) {
	id, answer, err := c.send(ctx, typ, body, files)
	if err != nil {
		return nil, err
	}
	select {
	case f := <-answer:
		return reply(f, typ)
	case <-c.done:
		return c.last(answer, typ)
	case <-ctx.Done():
		c.forget(id)
		return nil, context.Cause(ctx)
	}
}

// Forward makes a request of another client, and returns the reply with the id of the request.
func (c *Conn) Forward(ctx context.Context, f ctlproto.Frame) (ctlproto.Frame, error) {
	ctx, cancel := c.limited(ctx, 0)
	defer cancel()
	id, answer, err := c.send(ctx, f.Type, f.Body, nil)
	if err != nil {
		return f, err
	}
	select {
	case got := <-answer:
		got.ID = f.ID
		return got, nil
	case <-c.done:
		return f, gone(c.Err())
	case <-ctx.Done():
		c.forget(id)
		return f, context.Cause(ctx)
	}
}

// last checks for a reply that arrived just before the connection ended.
func (c *Conn) last(answer <-chan ctlproto.Frame, typ uint16) ([]byte, error) {
	select {
	case f := <-answer:
		return reply(f, typ)
	default:
		return nil, gone(c.Err())
	}
}

// reply checks the header of a reply.
func reply(f ctlproto.Frame, typ uint16) ([]byte, error) {
	if f.Type != typ|ctlproto.CTL_REPLY {
		return nil, fmt.Errorf("%w: type %#x in answer to %#x", ctlproto.ErrMalformed, f.Type, typ)
	}
	if f.Status != 0 {
		return nil, errno(int64(f.Status))
	}
	return f.Body, nil
}

// errno turns a negative error number into an error.
func errno(n int64) error {
	if n >= 0 || n < -4095 {
		return fmt.Errorf("%w: status %d", ctlproto.ErrMalformed, n)
	}
	return syscall.Errno(-n)
}

// gone returns an error that says that the connection has ended, and why.
func gone(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, net.ErrClosed) {
		return ErrClosed
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w by the stack host", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// limited adds a deadline to ctx: that of LimitAnswers, or else answerLimit if ctx has none.
// A call waits in the stack for the time wait.
func (c *Conn) limited(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	limit := c.limit
	if limit == 0 {
		if _, ok := ctx.Deadline(); ok {
			return context.WithCancel(ctx)
		}
		limit = answerLimit
	}
	return context.WithTimeoutCause(ctx, wait+limit, fmt.Errorf("%w within %v", ErrNoAnswer, wait+limit))
}
