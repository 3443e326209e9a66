// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/pkg/config"
)

const (
	// maxFrame is the maximum size of a frame from either side.
	maxFrame = 1 << 16

	// maxQueued is the maximum number of frames that wait for the stack.
	maxQueued = 1024

	// passtLimit bounds passt's start, and its end after its link has
	// ended.
	passtLimit = 10 * time.Second
	passtPoll  = 2 * time.Millisecond
)

// FindPasst returns the path of the program passt.
func FindPasst() (string, error) {
	path, err := exec.LookPath("passt")
	if err != nil {
		return "", errors.New("the program passt is not installed: `apt install passt`, or use user")
	}
	return path, nil
}

// Passt is a running passt and its link. passt is a program that does the same
// as Gateway. Its side of the link is a stream with a length before each frame.
// The stack's side has one frame per message.
type Passt struct {
	cmd    *exec.Cmd
	stderr lastLine
	exited chan struct{}
	socket net.Conn    // to passt
	link   net.Conn    // to the stack
	frames chan []byte // on their way to the stack
	copied sync.WaitGroup
	broken atomic.Pointer[tooLongError] // the reason why we ended it; nil: we did not
}

// StartPasst runs passt until Close and returns the stack's end of its link. If
// cfg has no address, passt assigns the host's own by DHCP and router
// advertisements.
func StartPasst(ctx context.Context, cfg Config, log *slog.Logger) (*Passt, *os.File, error) {
	path, err := FindPasst()
	if err != nil {
		return nil, nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("starting passt: %w", err)
	}
	widen(fds)
	ours, theirs := os.NewFile(uintptr(fds[0]), "passt"), os.NewFile(uintptr(fds[1]), "passt")
	defer ours.Close()
	defer theirs.Close()
	p := &Passt{exited: make(chan struct{}), frames: make(chan []byte, maxQueued)}
	if p.socket, err = net.FileConn(ours); err != nil {
		return nil, nil, fmt.Errorf("starting passt: %w", err)
	}
	// passt ends with its stream, so it cannot outlive us.
	p.cmd = exec.Command(path, passtArgs(cfg)...)
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // Ctrl-C must reach lklrun only
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		p.socket.Close()
		return nil, nil, fmt.Errorf("starting passt: %w", err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // its messages are in stderr
	}()
	if err := p.ready(ctx); err != nil {
		p.end()
		return nil, nil, fmt.Errorf("starting passt: %w", err)
	}
	conn, end, err := pair()
	if err != nil {
		p.end()
		return nil, nil, fmt.Errorf("starting passt: %w", err)
	}
	p.link = conn
	p.copied.Go(func() { p.toPasst(log) })
	p.copied.Go(func() { p.fromPasst(log) })
	p.copied.Go(p.toStack)
	return p, end, nil
}

// passtArgs returns passt's command line. Descriptor 3 is passt's end of the
// stream.
func passtArgs(cfg Config) []string {
	args := []string{"--foreground", "--quiet", "--fd", "3", "--mtu", fmt.Sprint(cfg.MTU)}
	if cfg.Address.IsValid() {
		args = append(args, "--address", cfg.Address.Addr().String(), "--netmask", fmt.Sprint(cfg.Address.Bits()), "--gateway", cfg.Gateway.String())
		if cfg.Address6.IsValid() {
			args = append(args, "--address", cfg.Address6.Addr().String(), "--gateway", cfg.Gateway6.String())
		} else {
			args = append(args, "--ipv4-only")
		}
	}
	return append(args, passtPorts(cfg.Publish)...)
}

// passtDoor is a port of the host in passt's form: at one address, or at all.
type passtDoor struct {
	udp  bool
	port uint16
}

// CheckPasstPublish returns an error if passt cannot open the ports as given.
func CheckPasstPublish(all []config.Publish) error {
	seen := map[passtDoor]config.Publish{}
	for _, p := range all {
		k := passtDoor{p.UDP, p.HostPort}
		first, twice := seen[k]
		if twice && (first.Port != p.Port || !first.Addr.IsUnspecified() || !p.Addr.IsUnspecified()) {
			return fmt.Errorf("--publish %s: passt opens a port at one address or, with 0.0.0.0 and [::], at all; %s has it already", p, first)
		}
		seen[k] = p
	}
	return nil
}

func passtPorts(all []config.Publish) []string {
	var args []string
	for n, p := range all {
		option := "--tcp-ports"
		if p.UDP {
			option = "--udp-ports"
		}
		other := slices.IndexFunc(all, func(o config.Publish) bool { return o.UDP == p.UDP && o.HostPort == p.HostPort && o != p })
		switch ports := fmt.Sprintf("%d:%d", p.HostPort, p.Port); {
		case other < 0:
			args = append(args, option, fmt.Sprintf("%s/%s", hostAddrs(p)[0], ports))
		case other > n: // both represent all addresses
			args = append(args, option, ports)
		}
	}
	return args
}

// ready waits until passt accepts frames, which it does once all its sockets
// exist. The test frames have an unused type (IEEE 802, local experiments).
func (p *Passt) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passtLimit)
	defer cancel()
	frame := append([]byte{0, 0, 0, 60, 2, 'l', 'k', 'l', 0, 1, 2, 'l', 'k', 'l', 0, 2, 0x88, 0xb5}, make([]byte, 46)...)
	if _, err := p.socket.Write(frame); err != nil {
		return err
	}
	raw, err := p.socket.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	tick := time.NewTicker(passtPoll)
	defer tick.Stop()
	for {
		left := 0
		var qerr error
		if err := raw.Control(func(fd uintptr) { left, qerr = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || qerr != nil {
			return errors.Join(err, qerr)
		}
		select {
		case <-p.exited:
			return errors.New(p.Last())
		case <-ctx.Done():
			return fmt.Errorf("it does not get ready: %w", context.Cause(ctx))
		case <-tick.C:
			if left == 0 {
				return nil
			}
		}
	}
}

// Last returns passt's last message.
func (p *Passt) Last() string {
	if said := p.stderr.String(); said != "" {
		return said
	}
	return "it ended without a word"
}

// toPasst transfers the stack's frames to passt.
func (p *Passt) toPasst(log *slog.Logger) {
	defer p.socket.Close()
	b := make([]byte, 4+maxFrame)
	for {
		n, err := p.link.Read(b[4:])
		if err != nil || n == 0 {
			return
		}
		binary.BigEndian.PutUint32(b, uint32(n))
		if _, err := p.socket.Write(b[:4+n]); err != nil {
			log.Debug("passt takes nothing any more", "error", err)
			return
		}
	}
}

// fromPasst reads passt's frames at once, because passt does not wait: it drops
// frames that its socket does not accept.
func (p *Passt) fromPasst(log *slog.Logger) {
	defer close(p.frames)
	r := bufio.NewReaderSize(p.socket, 4*maxFrame)
	for {
		b, err := nextFrame(r)
		if err != nil {
			var long *tooLongError
			if errors.As(err, &long) {
				p.broken.Store(long)
			}
			log.Debug("passt sends nothing any more", "error", err)
			return
		}
		p.frames <- b
	}
}

// tooLongError reports an invalid frame length. The rest of the stream is not
// readable.
type tooLongError struct{ length uint32 }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("passt sent a frame of %d bytes, more than the %d that one may have", e.length, maxFrame)
}

// nextFrame reads a frame from passt's stream. It skips empty frames, because
// an empty message tells the stack that the link has ended.
func nextFrame(r io.Reader) ([]byte, error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		switch n := binary.BigEndian.Uint32(head[:]); {
		case n > maxFrame:
			return nil, &tooLongError{n}
		case n > 0:
			b := make([]byte, n)
			_, err := io.ReadFull(r, b)
			return b, err
		}
	}
}

// Gone describes why the link has ended.
func (p *Passt) Gone() string {
	if long := p.broken.Load(); long != nil {
		return long.Error()
	}
	return "passt has ended"
}

// toStack transfers frames to the stack. After the stack has stopped reading,
// it discards the rest.
func (p *Passt) toStack() {
	for b := range p.frames {
		if _, err := p.link.Write(b); err != nil {
			p.link.Close()
		}
	}
	p.link.Close()
}

// Close ends passt after the stack has ended.
func (p *Passt) Close() {
	p.link.Close()
	p.end()
	p.copied.Wait()
}

func (p *Passt) end() {
	p.socket.Close()
	select {
	case <-p.exited:
	case <-time.After(passtLimit):
		_ = p.cmd.Process.Kill() // it has ended by now
		<-p.exited
	}
}

// lastLine keeps the last line written to it.
type lastLine struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if over := len(l.text) - 4096; over > 0 {
		l.text = l.text[over:]
	}
	return len(b), nil
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(string(l.text))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// PasstConfig returns the network between the stack and the n-th gateway of a
// run. It uses the given addresses or those of Default.
func PasstConfig(n int, i *config.Interface, ipv6 bool) (Config, error) {
	c := Default(n)
	if len(i.IP) > 0 {
		var err error
		if c, err = Around(i.IP[0], i.GW); err != nil {
			return c, err
		}
	}
	if i.MTU != 0 {
		c.MTU = i.MTU
	}
	if ipv6 && c.MTU >= config.MinMTU6 {
		c = c.WithIPv6(n)
	}
	if len(i.IP6) > 0 {
		c.Address6, c.Gateway6 = i.IP6[0], i.GW6
		for a := c.Address6.Masked().Addr().Next(); !c.Gateway6.IsValid(); a = a.Next() {
			if a != c.Address6.Addr() {
				c.Gateway6 = a
			}
		}
	}
	c.Host, c.Host6 = c.Gateway, c.Gateway6 // passt has no other name for it
	return c, nil
}
