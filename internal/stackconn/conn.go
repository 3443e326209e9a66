// SPDX-License-Identifier: Apache-2.0

// Package stackconn is the one door to a running stack: a client of the control
// socket (internal/ctlproto). Conn makes requests and system calls; on top of
// the calls lie files, directories, sockets and a transport for
// github.com/mdlayher/netlink, so that everything above is ordinary Go.
//
// All methods may be called from several goroutines at once, and each waits for
// no longer than its context, or than a limit of its own where the context has
// none. An error number that the stack or its host returned is found with
// errors.Is(err, syscall.ENOENT) and the like.
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

	"github.com/lklrun/lklrun/internal/ctlproto"
)

// ErrClosed is wrapped by what fails because the connection is over.
var ErrClosed = errors.New("the connection to the stack host is closed")

// ErrNoAnswer is wrapped by what fails because the stack host did not answer
// in time although the connection stands.
var ErrNoAnswer = errors.New("the stack host does not answer")

const (
	// answerLimit bounds the wait for a reply that the stack host can give at
	// once, for callers whose context has no deadline.
	answerLimit = 30 * time.Second

	// cancelLimit bounds the wait for the outcome of a call that was cancelled:
	// without it a call that went through after all would be lost, and with it
	// the descriptor it opened.
	cancelLimit = time.Second
)

// Conn is a connection to a stack host.
type Conn struct {
	sock  *net.UnixConn
	hello ctlproto.HelloReply
	inbox inbox         // receive's alone
	asked chan Question // what lklrun is asked

	writing sync.Mutex // held while a frame is written

	mu      sync.Mutex
	lastID  uint32
	waiting map[uint32]chan ctlproto.Frame // by request id
	subs    map[*subscriber]struct{}
	mask    uint32 // of the subscription in force
	words   string // what the stack host said before anybody subscribed
	err     error  // why done is closed
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

// RefusedError is why a stack host ended instead of answering the greeting, in
// its own words: it sends them as a warning before it goes.
type RefusedError struct{ Words string }

// Error returns the stack host's words.
func (e *RefusedError) Error() string { return e.Words }

// New makes a connection of a socket that leads to a stack host, and greets it.
// The socket belongs to the connection from then on, also when New fails. The
// error is a *RefusedError when the stack host said why it cannot run.
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
			<-c.done // all it said has been read then
		}
		c.Close()
		c.mu.Lock()
		words := c.words
		c.mu.Unlock()
		if words != "" {
			return nil, &RefusedError{words}
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

// Refresh asks again what Hello remembers: state and target change.
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
		return h, fmt.Errorf("it speaks version %d of the control protocol, this program speaks %d", h.Version, ctlproto.CTL_VERSION)
	}
	return h, nil
}

// Hello returns what the stack host said of itself when the connection was made.
func (c *Conn) Hello() ctlproto.HelloReply { return c.hello }

// Done is closed when the connection has ended, from either side.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended: nil while it stands, io.EOF when the stack
// host closed it, ErrClosed after Close.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection; the stack host closes the descriptors that calls
// on it opened.
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

// receive hands out the frames that arrive until the connection ends.
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
		if ok { // else nobody waits for it any more
			answer <- f
		}
	}
}

// pushed takes a frame that answers no request, if it is one.
func (c *Conn) pushed(f ctlproto.Frame) (bool, error) {
	switch f.Type {
	case ctlproto.CTL_EVENT:
		return true, c.publish(f)
	case ctlproto.CTL_ASKED:
		return true, c.question(f)
	}
	return false, nil
}

// send writes a request and returns its id and where its reply will appear.
func (c *Conn) send(ctx context.Context, typ uint16, body []byte, files []*os.File) (uint32, <-chan ctlproto.Frame, error) {
	answer := make(chan ctlproto.Frame, 1)
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return 0, nil, gone(err)
	}
	c.lastID++
	id := c.lastID
	c.waiting[id] = answer
	c.mu.Unlock()

	if err := c.write(ctx, ctlproto.Frame{Type: typ, ID: id, Body: body}, files); err != nil {
		c.forget(id)
		return 0, nil, err
	}
	return id, answer, nil
}

func (c *Conn) forget(id uint32) {
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
}

// write sends one frame, with descriptors beside it.
func (c *Conn) write(ctx context.Context, f ctlproto.Frame, files []*os.File) error {
	b, err := f.Append(nil)
	if err != nil {
		return err
	}
	return c.writeWith(ctx, b, files, nil)
}

// writeWith sends b with fds and those of files.
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
	// Control runs while the descriptor cannot be closed under us. It must
	// not be made blocking, which File.Fd would do.
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
			return gone(err) // receive reads what came before the end, then ends
		}
		// Half a frame cannot be taken back.
		c.end(err)
		return gone(err)
	}
	return nil
}

// request makes one request and returns the body of its reply.
func (c *Conn) request(ctx context.Context, typ uint16, body []byte, files ...*os.File) ([]byte, error) {
	ctx, cancel := limited(ctx, answerLimit)
	defer cancel()
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

// last looks for a reply that arrived just before the connection ended.
func (c *Conn) last(answer <-chan ctlproto.Frame, typ uint16) ([]byte, error) {
	select {
	case f := <-answer:
		return reply(f, typ)
	default:
		return nil, gone(c.Err())
	}
}

// reply checks the head of a reply.
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

// gone says that the connection is over, and why.
func gone(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, net.ErrClosed) {
		return ErrClosed
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w by the stack host", ErrClosed)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// limited gives ctx a deadline where it has none.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", ErrNoAnswer, limit))
}
