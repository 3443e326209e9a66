// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/paths"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// roundLimit bounds the answer of a node, in the host's time. A node itself reports a
// program that runs for 30 s without a system call.
const roundLimit = 2 * time.Minute

// maxMessage limits a message of a node.
const maxMessage = 1 << 20

// Types of messages: see csrc/virtual/virtual.h.
const (
	msgFrame  = 'f'
	msgStart  = 's'
	msgGrant  = 'g'
	msgLost   = 'w'
	msgServe  = 'c'
	msgDone   = 'd'
	msgListen = 'l'
	msgExec   = 'p'
	msgEnd    = 'e'
	msgFail   = 'x'
)

// header is the head of a message: the twin of struct msg in csrc/virtual/virtual.h.
type header struct {
	Type, _ uint8
	ID      uint16 // interface or program
	Len     uint32
	Time    uint64
}

// node is a process of lklvirtual.
type node struct {
	conf   *Node
	conn   net.Conn
	in     *bufio.Reader
	out    *bufio.Writer
	cmd    *exec.Cmd
	stderr bytes.Buffer
	next   uint64 // time of its next event

	ctlEnd  *net.UnixConn // for ctl
	ctl     *stackconn.Conn
	steps   *paths.Steps
	step    uint64 // time of the next of steps
	changed bool   // a step is needed before that
	moved   bool   // it has done something since the last Look

	executed map[string]bool // paths of programs
}

// Find returns the path of lklvirtual, which must be in the folder bin; empty: that of this program.
func Find(bin string) (string, error) {
	if bin == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("looking for lklvirtual: %w", err)
		}
		bin = filepath.Dir(exe)
	}
	path := filepath.Join(bin, "lklvirtual")
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", fmt.Errorf("%s (expected in lklrun's directory): %w; it exists only on x86-64", path, err)
	}
	return path, nil
}

// startNode starts the process, which boots the stack.
func startNode(ctx context.Context, path string, conf *Node, seed uint64) (*node, error) {
	n := &node{conf: conf, step: never, executed: map[string]bool{}}
	conn, messages, err := pair()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", conf.Name, err)
	}
	defer messages.Close()
	n.conn = conn
	ctl, calls, err := pair()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("node %s: %w", conf.Name, err)
	}
	defer calls.Close()
	n.ctlEnd = ctl
	hosts, err := unnamed(conf.Hosts)
	if err != nil {
		conn.Close()
		ctl.Close()
		return nil, fmt.Errorf("node %s: %w", conf.Name, err)
	}
	defer hosts.Close()
	n.in, n.out = bufio.NewReaderSize(n.conn, 1<<18), bufio.NewWriterSize(n.conn, 1<<18)
	n.cmd = exec.CommandContext(ctx, path, conf.args(seed, "/proc/self/fd/5")...)
	n.cmd.Stderr, n.cmd.ExtraFiles = &n.stderr, []*os.File{messages, calls, hosts}
	n.cmd.Env, n.cmd.Dir, n.cmd.WaitDelay = conf.Env, conf.Dir, time.Second
	// Ctrl-C ends the nodes through the context.
	n.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		conn.Close()
		ctl.Close()
		return nil, fmt.Errorf("node %s: %w", conf.Name, err)
	}
	return n, nil
}

// unnamed returns a file in memory, of which nothing remains.
func unnamed(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("hosts", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "hosts")
	if _, err := f.WriteString(text); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// pair returns the two ends of a connection: ours and that of a node.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "node"), os.NewFile(uintptr(fds[1]), "lklrun")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// configure configures the stack when it has booted.
func (n *node) configure(ctx context.Context, seed uint64) (err error) {
	boot, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	if n.ctl, err = stackconn.New(boot, n.ctlEnd); err != nil {
		return err
	}
	n.steps = paths.NewSteps(ctx, n.ctl, n.conf.Paths, seed)
	nl, err := n.steps.Netlink()
	if err == nil {
		err = nl.Configure(ctx, n.conf.Config)
	}
	if err == nil {
		err = n.keep(begin)
	}
	return err
}

// accept makes the node accept calls over the control connection, at a time.
func (n *node) accept(at uint64) error {
	err := n.send(msgServe, 0, at, nil)
	if err == nil {
		err = n.out.Flush()
	}
	if err != nil {
		return n.ended(err)
	}
	return nil
}

// keep maintains the paths of the stack.
func (n *node) keep(now uint64) error {
	next, err := n.steps.Step(Epoch.Add(time.Duration(now - begin)))
	if n.step = never; !next.IsZero() {
		n.step = begin + uint64(next.Sub(Epoch))
	}
	return err
}

// Alone returns the arguments with which lklvirtual runs a command on this stack until it ends, for
// at most limit of virtual time. Its output and status are those of the command.
func Alone(library, mem string, sysctls []string, limit time.Duration, command []string) []string {
	n := Node{Library: library, Mem: mem, Sysctls: sysctls}
	args := append([]string{"-a", strconv.Itoa(int(math.Ceil(limit.Seconds())))}, n.args(0, "/etc/hosts")...)
	return slices.Concat(args, []string{"run"}, command)
}

// args returns the arguments of lklvirtual; hosts is the file that programs see as /etc/hosts.
func (n *Node) args(seed uint64, hosts string) []string {
	args := []string{"-S", strconv.FormatUint(seed, 10), "-l", n.Library, "-m", n.Mem, "-h", hosts}
	if n.MPTCP {
		args = append(args, "-M")
	}
	args = append(args, "--")
	for _, i := range n.Interfaces {
		args = append(args, "if", i.MAC().String())
	}
	for _, s := range n.Sysctls {
		args = append(args, "sysctl", s)
	}
	return args
}

func (n *node) send(kind uint8, id int, at uint64, data []byte) error {
	h := header{Type: kind, ID: uint16(id), Len: uint32(len(data)), Time: at}
	b, err := binary.Append(nil, binary.NativeEndian, h)
	if err == nil {
		if _, err = n.out.Write(b); err == nil {
			_, err = n.out.Write(data)
		}
	}
	return err
}

// receive reads a message.
func (n *node) receive() (h header, data []byte, err error) {
	if err = binary.Read(n.in, binary.NativeEndian, &h); err == nil {
		if h.Len > maxMessage {
			return h, nil, fmt.Errorf("node %s: a message of %d bytes", n.conf.Name, h.Len)
		}
		data = make([]byte, h.Len)
		_, err = io.ReadFull(n.in, data)
	}
	if err != nil {
		return h, nil, n.ended(err)
	}
	if h.Type == msgFail {
		return h, nil, &Error{Node: n.conf.Name, Text: string(data)}
	}
	return h, data, nil
}

// ended returns the error for a node that has ended, or that does not answer.
func (n *node) ended(err error) error {
	text := "lklvirtual has ended"
	if os.IsTimeout(err) {
		text = fmt.Sprintf("no answer within %v", roundLimit)
	}
	if log := strings.TrimSpace(n.stderr.String()); log != "" {
		text += ": " + log[strings.LastIndexByte(log, '\n')+1:]
	}
	return &Error{Node: n.conf.Name, Text: text}
}

// close ends the process with all its programs.
func (n *node) close() {
	if n.steps != nil {
		n.steps.Close()
	}
	n.ctlEnd.Close()
	n.conn.Close()
	_ = n.cmd.Process.Kill() // it may have ended
	_ = n.cmd.Wait()         // killed
}
