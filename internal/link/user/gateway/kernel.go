// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway && !device

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	links "github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/ring"
	"github.com/lklrun/lklrun/internal/link/user/rules"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/pkg/config"
)

// kernel is a second stack, in an lklhost without target, between the stack and the router.
// It ends the TCP connections of the stack, and passes all other frames on to the router. For
// each connection, it asks this process to connect. This process decides, connects, and
// passes the connected socket on. The kernel's process can use no other socket.
type kernel struct {
	g      *Gateway
	cmd    *exec.Cmd
	exited chan struct{}
	devs   [2]int // its links to the stack and to the router
	conn   *stackconn.Conn
	asks   *net.UnixConn
	cancel context.CancelFunc // ends the attempts to connect

	mu       sync.Mutex
	carried  map[uint64]*entry     // connections that have not ended
	piped    map[uint64]*pipe      // those of them whose data pass this process
	entering map[uint64]chan error // connections into the stack that have no result yet
	ended    bool                  // the kernel answers no more
	closing  bool                  // no socket is replaced any more
	replaces sync.WaitGroup        // sockets that are being replaced
	lastID   uint64                // of connections into the stack
}

// Messages of csrc/shared/gateway_proto.h.
const (
	kernelAsk     = 1
	kernelAnswer  = 2
	kernelEnded   = 3
	kernelEnter   = 4
	kernelEntered = 5
	kernelCancel  = 6
	kernelEnd     = 7
	kernelReplace = 8

	kernelIDEnter = 1 << 63

	verdictDrop   = 0
	verdictAccept = 1
	verdictReset  = 2
	verdictICMP   = 3

	sizeKernelMsg = 56
)

// kernelStart bounds the start of the kernel.
const kernelStart = 20 * time.Second

// kernelSysctls are the settings of the kernel. A connection that has ended leaves nothing
// behind, see timeWait. The link loses nothing, so no limit is for ICMP errors.
var kernelSysctls = []stacknet.Sysctl{
	{Key: "net.core.somaxconn", Value: "4096"},
	{Key: "net.ipv4.tcp_max_syn_backlog", Value: "8192"},
	{Key: "net.ipv4.tcp_syncookies", Value: "0"},
	{Key: "net.ipv4.tcp_max_tw_buckets", Value: "0"},
	{Key: "net.ipv4.tcp_rmem", Value: "4096 131072 8388608"},
	{Key: "net.ipv4.tcp_wmem", Value: "4096 262144 8388608"},
	{Key: "net.ipv4.icmp_ratelimit", Value: "0"},
	{Key: "net.ipv4.icmp_msgs_per_sec", Value: "1000000"},
	{Key: "net.ipv4.icmp_msgs_burst", Value: "1000000"},
	{Key: "net.ipv6.icmp.ratelimit", Value: "0"},
}

// kernelSysctls6 are further settings, if the MTU is large enough for IPv6.
var kernelSysctls6 = []stacknet.Sysctl{
	{Key: "net.ipv6.conf.eth0.router_solicitations", Value: "0"},
	{Key: "net.ipv6.conf.eth1.disable_ipv6", Value: "1"},
}

// CheckKernel returns an error if no kernel can end TCP connections on this host.
func CheckKernel() error {
	one, other, err := ring.Bell()
	if err != nil {
		return fmt.Errorf("processes cannot share memory: %w", err)
	}
	return errors.Join(one.Close(), other.Close())
}

// newKernel starts the kernel, without links to the stack and the router.
func (g *Gateway) newKernel(ctx context.Context) (k *kernel, err error) {
	ctx, stop := context.WithTimeout(ctx, kernelStart)
	defer stop()
	k = &kernel{g: g, exited: make(chan struct{}), carried: map[uint64]*entry{}, piped: map[uint64]*pipe{}, entering: map[uint64]chan error{}}
	if err := k.launch(ctx); err != nil {
		return nil, err
	}
	if err = k.configure(ctx); err != nil {
		k.discard()
		return nil, err
	}
	return k, nil
}

// discard ends a kernel that has served nobody.
func (k *kernel) discard() {
	k.kill()
	k.conn.Close()
	k.asks.Close()
}

// startKernel starts the kernel before the stack, and joins it to the router by its bell. It
// returns the bell for the stack.
func (g *Gateway) startKernel(ctx context.Context, router *os.File) (*os.File, error) {
	k, err := g.newKernel(ctx)
	if err != nil {
		return nil, err
	}
	one, other, err := ring.Bell()
	if err != nil {
		k.discard()
		return nil, err
	}
	err = k.join(ctx, one, router)
	one.Close()
	if err != nil {
		other.Close()
		k.discard()
		return nil, err
	}
	router.Close()
	g.useKernel(ctx, k)
	return other, nil
}

// insertKernel starts the kernel for the first connection, between the stack and the router. It
// returns the router's new end, or nil if the router must serve the connections.
func (g *Gateway) insertKernel(ctx context.Context, stack *ring.End) *ring.End {
	k, err := g.newKernel(ctx)
	if err != nil {
		g.withoutKernel(ctx, err)
		return nil
	}
	router, bell, err := ring.New()
	if err == nil {
		err = g.link.replace(stack, router, func(outer *os.File) error { return k.join(ctx, outer, bell) })
		bell.Close()
		if err != nil {
			router.Release()
		}
		if errors.Is(err, unix.EBADMSG) {
			err = errors.New("the stack is of an earlier lklrun; build it again")
		}
	}
	if err != nil {
		k.discard()
		g.withoutKernel(ctx, err)
		return nil
	}
	g.useKernel(ctx, k)
	return router
}

// useKernel answers the kernel's requests from now on.
func (g *Gateway) useKernel(ctx context.Context, k *kernel) {
	ctx, k.cancel = context.WithCancel(ctx)
	g.mu.Lock()
	g.kernel = k
	g.mu.Unlock()
	go k.serve(ctx)
}

// withoutKernel reports that there is no kernel. Some stacks cannot be one.
func (g *Gateway) withoutKernel(ctx context.Context, err error) {
	g.log.Debug("gateway: lklrun ends TCP connections itself", "error", err)
	if ctx.Err() == nil && !errors.As(err, new(*notKernelError)) {
		g.warn(fmt.Sprintf("the user-mode gateway ends TCP connections in lklrun, which is slower: %v", err))
	}
}

// notKernelError reports that a stack cannot be the kernel of a gateway.
type notKernelError struct{ release string }

func (e *notKernelError) Error() string {
	return fmt.Sprintf("the stack (%s) cannot be the kernel of a gateway; use one of lklrun's own stacks", e.release)
}

// launch starts the process and connects to it.
func (k *kernel) launch(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	own := k.g.cfg.Kernel
	if err := os.Mkdir(own.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	ctl, theirCtl, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer theirCtl.Close()
	asks, theirAsks, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		ctl.Close()
		return err
	}
	defer theirAsks.Close()
	k.cmd = exec.Command(filepath.Join(filepath.Dir(exe), "lklhost"), "--run", own.Dir, "--name", filepath.Base(own.Dir),
		"--abi", "native", "--stack", own.Library, "--ctl-fd", "3", "--gateway", "4")
	k.cmd.ExtraFiles = []*os.File{theirCtl, theirAsks}
	k.cmd.Env = []string{}
	if err := k.cmd.Start(); err != nil {
		ctl.Close()
		asks.Close()
		return err
	}
	k.asks = asks
	go func() {
		defer close(k.exited)
		_ = k.cmd.Wait() // the process reports its errors on the control connection
	}()
	if k.conn, err = stackconn.New(ctx, ctl); err != nil {
		k.asks.Close()
		k.kill()
	}
	return err
}

// socketPair returns two connected unix sockets, the second one for another process.
func socketPair(kind int) (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "gateway"), os.NewFile(uintptr(fds[1]), "gateway")
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// configure boots the kernel and seals it.
func (k *kernel) configure(ctx context.Context) error {
	cfg := &k.g.cfg
	macs := []config.MAC{config.MAC([]byte(mac)), {0x02, 'l', 'k', 'l', 0, 2}}
	release, err := k.conn.Boot(ctx, 0, "lkl_gateway")
	if err != nil {
		return err
	}
	for i, address := range macs {
		f, err := links.Wire(fmt.Sprintf("gateway %d", i))
		if err != nil {
			return err
		}
		add := ctlproto.LinkAdd{Kind: ctlproto.CTL_LINK_WIRE, Flags: links.VnetFlags(true), MAC: address, MTU: uint16(cfg.MTU)}
		dev, _, err := k.conn.AddLink(ctx, add, f)
		f.Close()
		if err != nil {
			return err
		}
		k.devs[i] = dev
	}
	outside := stacknet.Link{Name: "eth0", MTU: cfg.MTU}
	for _, n := range cfg.networks() {
		outside.Addrs = append(outside.Addrs, netip.PrefixFrom(n.gateway, n.address.Bits()))
	}
	sysctls := slices.Clone(kernelSysctls)
	if cfg.MTU >= config.MinMTU6 {
		sysctls = append(sysctls, kernelSysctls6...)
		if !cfg.Address6.IsValid() {
			sysctls = append(sysctls, stacknet.Sysctl{Key: "net.ipv6.conf.eth0.disable_ipv6", Value: "1"})
		}
	}
	if err := k.route(ctx, stacknet.Config{Sysctls: sysctls, Links: []stacknet.Link{outside, {Name: "eth1", MTU: cfg.MTU}}}); err != nil {
		return err
	}
	if _, err := k.conn.Go(ctx, ctlproto.Go{SpinUS: uint32(cfg.Kernel.Spin)}); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return &notKernelError{release}
		}
		return err
	}
	k.g.log.Debug("gateway: a kernel ends TCP connections", "release", release, "pid", k.cmd.Process.Pid)
	return nil
}

// join joins the kernel to the stack and the router.
func (k *kernel) join(ctx context.Context, outer, router *os.File) error {
	if err := k.conn.JoinLink(ctx, k.devs[1], router); err != nil {
		return err
	}
	return k.conn.JoinLink(ctx, k.devs[0], outer)
}

// route configures the kernel's network, and makes the kernel the destination of all packets.
func (k *kernel) route(ctx context.Context, cfg stacknet.Config) error {
	n, err := stacknet.Open(ctx, k.conn)
	if err != nil {
		return err
	}
	defer n.Close()
	if err := n.Configure(ctx, cfg); err != nil {
		return err
	}
	const lo, table = 1, 100
	for _, to := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		local := stacknet.Route{Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: table, Dst: to, Ifindex: lo, Proto: unix.RTPROT_STATIC}
		rule := stacknet.Rule{Priority: 1, Src: to.Addr(), In: "eth0", Table: table}
		if err := errors.Join(n.Do(stacknet.SetRoute(local), stacknet.AddRule(rule))...); err != nil {
			return fmt.Errorf("making %v local: %w", to, err)
		}
	}
	return nil
}

// PID returns the process of the gateway's kernel, or 0.
func (g *Gateway) PID() int {
	if k := g.theKernel(); k != nil {
		return k.cmd.Process.Pid
	}
	return 0
}

// serve answers the kernel's requests until it has ended.
func (k *kernel) serve(ctx context.Context) {
	b := make([]byte, sizeKernelMsg+1)
	for {
		n, err := k.asks.Read(b)
		if err != nil || n == 0 {
			break
		}
		if n != sizeKernelMsg {
			continue
		}
		m := b[:n]
		id := binary.NativeEndian.Uint64(m[8:])
		switch binary.NativeEndian.Uint32(m) {
		case kernelAsk:
			from, to := kernelAddress(m[16:32], m[48:]), kernelAddress(m[32:48], m[50:])
			go k.connect(ctx, id, from, to)
		case kernelEnded:
			k.entered(id, errNotEntered)
			k.release(id)
			k.pipeEnded(id, binary.NativeEndian.Uint32(m[4:]) == verdictReset)
		case kernelEntered:
			k.entered(id, nil)
		}
	}
	k.mu.Lock()
	k.ended = true
	for id, result := range k.entering {
		result <- errNotEntered
		delete(k.entering, id)
	}
	k.mu.Unlock()
	<-k.exited
	k.endPipes(!k.cmd.ProcessState.Success())
	if ctx.Err() == nil {
		k.g.warn("the gateway's kernel has ended, so the interface does not work any more")
	}
}

// kernelAddress returns an address and a port of a message.
func kernelAddress(addr, port []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(addr)).Unmap(), binary.BigEndian.Uint16(port))
}

// connect answers a request to connect. The stack sees the result of the host's attempt.
func (k *kernel) connect(ctx context.Context, id uint64, from, to netip.AddrPort) {
	g := k.g
	s := rules.Socket{Protocol: "tcp", From: from, To: to}
	toDNS := g.isDNS(tcpip.AddrFromSlice(to.Addr().AsSlice()), to.Port())
	if (g.rules != nil || g.proxy != nil) && toDNS {
		k.answerStream(ctx, id, s)
		return
	}
	if g.rules != nil {
		if report := g.rules.Refuse(s); report != nil {
			_ = report()
			k.refuse(id, to, prohibited)
			return
		}
	}
	if tables()[carried].full() {
		g.limited(carried)
		k.refuse(id, to, noHost)
		return
	}
	conn, flow, err := g.dial(ctx, stack.TransportEndpointID{
		LocalAddress: tcpip.AddrFromSlice(to.Addr().AsSlice()), LocalPort: to.Port(),
		RemoteAddress: tcpip.AddrFromSlice(from.Addr().AsSlice()), RemotePort: from.Port(),
	})
	if err != nil {
		g.log.Debug("gateway: connecting", "error", err)
		if errors.Is(err, unix.EMFILE) {
			g.limited(carried)
		}
		refused := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET)
		why := g.answerFor(to, err)
		switch {
		case refused:
			k.answer(id, verdictReset, nil, nil)
		case why != nil:
			k.refuse(id, to, why)
		default: // the host got no answer, so the stack gets none either
			k.answer(id, verdictDrop, nil, nil)
		}
		return
	}
	host := conn.(*net.TCPConn)
	if !k.carry(id) {
		host.Close()
		k.refuse(id, to, noHost)
		return
	}
	if flow.Watched() {
		k.watch(id, to, host, flow)
		return
	}
	defer host.Close()
	k.answer(id, verdictAccept, nil, host)
}

// carry counts a connection until release.
func (k *kernel) carry(id uint64) bool {
	e := &entry{g: k.g}
	if !tables()[carried].tryAdd(e) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.carried[id] = e
	return true
}

func (k *kernel) release(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.carried[id]; e != nil {
		tables()[carried].remove(e)
		delete(k.carried, id)
	}
}

// refuse makes the kernel answer with an ICMP error.
func (k *kernel) refuse(id uint64, to netip.AddrPort, why *icmpError) {
	if to.Addr().Is4() {
		k.answer(id, verdictICMP, []byte{why.type4, why.code4}, nil)
	} else {
		k.answer(id, verdictICMP, []byte{why.type6, why.code6}, nil)
	}
}

// errNotEntered reports that the stack has not accepted a connection.
var errNotEntered = errors.New("the stack does not accept the connection")

// enter joins a connection from outside to a new connection to the stack, as an address. The
// caller must close conn in any case; after an error, it is as before.
func (k *kernel) enter(ctx context.Context, from netip.Addr, to netip.AddrPort, conn *net.TCPConn) error {
	result := make(chan error, 1)
	k.mu.Lock()
	k.lastID++
	id := k.lastID | kernelIDEnter
	if !k.ended {
		k.entering[id] = result
	}
	ended := k.ended
	k.mu.Unlock()
	if ended || !k.carry(id) {
		k.entered(id, nil)
		return errNotEntered
	}
	m := kernelMsg(kernelEnter, id)
	src, dst := from.As16(), to.Addr().As16()
	copy(m[16:], src[:])
	copy(m[32:], dst[:])
	binary.BigEndian.PutUint16(m[50:], to.Port())
	if err := k.pass(m, conn); err != nil {
		k.entered(id, nil)
		k.release(id)
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	_, _ = k.asks.Write(kernelMsg(kernelCancel, id)) // fails if the kernel has ended
	return <-result                                  // it may have been made in the meantime
}

// entered sets the result of a connection into the stack.
func (k *kernel) entered(id uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if result := k.entering[id]; result != nil {
		result <- err
		delete(k.entering, id)
	}
}

// kernelMsg returns a message without further fields.
func kernelMsg(kind uint32, id uint64) []byte {
	m := make([]byte, sizeKernelMsg)
	binary.NativeEndian.PutUint32(m, kind)
	binary.NativeEndian.PutUint64(m[8:], id)
	return m
}

// answer sends a verdict, and the connected socket with verdictAccept.
func (k *kernel) answer(id uint64, verdict uint32, icmp []byte, conn syscall.Conn) {
	m := kernelMsg(kernelAnswer, id)
	binary.NativeEndian.PutUint32(m[4:], verdict)
	copy(m[52:], icmp)
	var err error
	if conn == nil {
		_, err = k.asks.Write(m)
	} else {
		err = k.pass(m, conn)
	}
	if err != nil {
		k.g.log.Debug("gateway: answering the kernel", "error", err)
		k.release(id)
		k.pipeEnded(id, true)
	}
	if err != nil && conn != nil { // for example because too many sockets are on their way
		k.answer(id, verdictDrop, nil, nil)
	}
}

// pass sends a message with a socket. The caller may close its own descriptor afterwards.
func (k *kernel) pass(m []byte, conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) { _, _, serr = k.asks.WriteMsgUnix(m, unix.UnixRights(int(fd)), nil) })
	return errors.Join(err, serr)
}

// close ends the kernel after the stack has ended. Within drainLimit, the kernel first passes
// the data that the stack has already sent on to the host's sockets.
func (k *kernel) close() {
	if k == nil {
		return
	}
	k.cancel()
	limit, stop := context.WithTimeout(context.Background(), drainLimit)
	defer stop()
	replaced := make(chan struct{})
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	go func() {
		k.replaces.Wait()
		close(replaced)
	}()
	select {
	case <-replaced:
	case <-k.exited:
	case <-limit.Done():
	}
	_ = k.asks.CloseWrite() // fails if the kernel has ended
	select {
	case <-k.exited:
	case <-limit.Done():
		k.g.log.Debug("the gateway's kernel could not send all data before its timeout")
	}
	k.kill()
	k.conn.Close()
	k.asks.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.carried {
		tables()[carried].remove(e)
		delete(k.carried, id)
	}
}

// kill kills the kernel's process if it has not ended.
func (k *kernel) kill() {
	_ = k.cmd.Process.Kill() // fails only if it has ended
	<-k.exited
}
