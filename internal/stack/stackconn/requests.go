// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// AddLink gives the stack a network device whose frames travel over f, which
// the caller may close afterwards. It returns the device id, and the interface
// index in the stack (0 before Boot).
func (c *Conn) AddLink(ctx context.Context, l ctlproto.LinkAdd, f *os.File) (dev, ifindex int, err error) {
	body, err := c.request(ctx, ctlproto.CTL_LINK_ADD, l.Append(nil), f)
	if err != nil {
		return 0, 0, fmt.Errorf("adding a link to the stack: %w", err)
	}
	var r ctlproto.LinkReply
	if err := r.Unmarshal(body); err != nil {
		return 0, 0, fmt.Errorf("adding a link to the stack: %w", err)
	}
	return int(r.Dev), int(r.IfIndex), nil
}

// JoinLink joins a device of kind CTL_LINK_WIRE to another one by its bell, which
// stays open.
func (c *Conn) JoinLink(ctx context.Context, dev int, bell *os.File) error {
	if _, err := c.request(ctx, ctlproto.CTL_LINK_JOIN, ctlproto.LinkJoin{Dev: int32(dev)}.Append(nil), bell); err != nil {
		return fmt.Errorf("joining link %d of the stack: %w", dev, err)
	}
	return nil
}

// DelLink removes a device.
func (c *Conn) DelLink(ctx context.Context, dev int) error {
	if _, err := c.request(ctx, ctlproto.CTL_LINK_DEL, ctlproto.LinkDel{Dev: int32(dev)}.Append(nil)); err != nil {
		return fmt.Errorf("removing link %d from the stack: %w", dev, err)
	}
	return nil
}

// Boot starts the kernel with mem bytes of memory (0: the library's default)
// and returns its release.
func (c *Conn) Boot(ctx context.Context, mem uint64, cmdline string) (release string, err error) {
	body, err := c.request(ctx, ctlproto.CTL_BOOT, ctlproto.Boot{Mem: mem, Cmdline: cmdline}.Append(nil))
	if err != nil {
		return "", fmt.Errorf("booting the stack: %w", err)
	}
	return string(body), nil
}

// Go releases the target and returns its process id.
func (c *Conn) Go(ctx context.Context, g ctlproto.Go) (pid int, err error) {
	body, err := c.request(ctx, ctlproto.CTL_GO, g.Append(nil))
	if err != nil {
		return 0, fmt.Errorf("releasing the target: %w", err)
	}
	var r ctlproto.GoReply
	if err := r.Unmarshal(body); err != nil {
		return 0, fmt.Errorf("releasing the target: %w", err)
	}
	return int(r.PID), nil
}

// Stop sends sig to every process of the target, and SIGKILL to the remaining ones after
// grace, then ends the stack. It returns when the request was accepted; Done reports the
// end.
func (c *Conn) Stop(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	m := ctlproto.Stop{Signal: uint32(sig), GraceMS: milliseconds(grace)}
	if _, err := c.request(ctx, ctlproto.CTL_STOP, m.Append(nil)); err != nil {
		return fmt.Errorf("stopping the stack: %w", err)
	}
	return nil
}

// Serve makes the stack host serve processes that it has not started. An OCI runtime
// sends their seccomp listeners to the listening unix socket l. Their capabilities in the
// user namespace of the network namespace netns are their rights in the stack. The caller
// may close both files afterwards. With stay, the run does not end with these processes.
func (c *Conn) Serve(ctx context.Context, l, netns *os.File, stay bool) error {
	m := ctlproto.Serve{}
	if stay {
		m.Flags |= ctlproto.CTL_SERVE_STAY
	}
	if _, err := c.request(ctx, ctlproto.CTL_SERVE, m.Append(nil), l, netns); err != nil {
		return fmt.Errorf("serving the processes of a container: %w", err)
	}
	return nil
}

// Netns makes sockets and files that are opened after it belong to a network namespace that
// the target has made. ino is the inode number of that namespace on the host. Netns
// returns the inode numbers of all such namespaces; with ino 0 it does only that. Call it
// before the connection is used by several goroutines.
func (c *Conn) Netns(ctx context.Context, ino uint64) ([]uint64, error) {
	body, err := c.request(ctx, ctlproto.CTL_NETNS, binary.LittleEndian.AppendUint64(nil, ino))
	if err != nil {
		return nil, err
	}
	c.netns = c.netns || ino != 0
	if len(body)%8 != 0 {
		return nil, fmt.Errorf("%w: list of namespaces with %d bytes", ctlproto.ErrMalformed, len(body))
	}
	all := make([]uint64, len(body)/8)
	for i := range all {
		all[i] = binary.LittleEndian.Uint64(body[8*i:])
	}
	return all, nil
}

// InNetns reports whether Netns has chosen a namespace.
func (c *Conn) InNetns() bool { return c.netns }

// Stat is one counter of the stack host.
type Stat struct {
	Name  string
	Value int64
}

// Stats returns the counters of the engine and the pump, in the stack host's order.
func (c *Conn) Stats(ctx context.Context) ([]Stat, error) {
	body, err := c.request(ctx, ctlproto.CTL_STATS, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the engine's counters: %w", err)
	}
	stats, err := ParseStats(body)
	if err != nil {
		return nil, fmt.Errorf("reading the engine's counters: %w", err)
	}
	return stats, nil
}

// ParseStats parses counters of the stack host, which are also part of the event of the
// target's end: a name and a value per line.
func ParseStats(body []byte) ([]Stat, error) {
	var stats []Stat
	sc := bufio.NewScanner(bytes.NewReader(body))
	for sc.Scan() {
		// The value follows the last blank, because the name of a counter may
		// contain a program's name with blanks.
		i := strings.LastIndexByte(sc.Text(), ' ')
		n, err := strconv.ParseInt(sc.Text()[i+1:], 10, 64)
		if i <= 0 || err != nil {
			return nil, fmt.Errorf("%w: counter line %q", ctlproto.ErrMalformed, sc.Text())
		}
		stats = append(stats, Stat{sc.Text()[:i], n})
	}
	return stats, sc.Err()
}

// Log returns the last lines of the stack's kernel log.
func (c *Conn) Log(ctx context.Context) ([]byte, error) {
	body, err := c.request(ctx, ctlproto.CTL_LOG, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the stack's log: %w", err)
	}
	return body, nil
}

// Owners lists the target's sockets in the stack.
func (c *Conn) Owners(ctx context.Context) ([]ctlproto.Owner, error) {
	body, err := c.request(ctx, ctlproto.CTL_OWNERS, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the owners of the sockets: %w", err)
	}
	owners, err := ctlproto.UnmarshalOwners(body)
	if err != nil {
		return nil, fmt.Errorf("reading the owners of the sockets: %w", err)
	}
	return owners, nil
}

// milliseconds rounds up, so that a short limit does not become zero.
func milliseconds(d time.Duration) uint32 {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 0), 1<<31-1))
}

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
