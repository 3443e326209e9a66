// SPDX-License-Identifier: Apache-2.0

package ctlproto

import (
	"bytes"
	"fmt"
	"strings"
)

// HelloRequest is struct ctl_hello_req.
type HelloRequest struct {
	Magic   uint32
	Version uint32 // the highest version the client supports
}

// Append appends the message in wire format to b.
func (m HelloRequest) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Magic)
	return le.AppendUint32(b, m.Version)
}

// HelloReply is struct ctl_hello_rep with the strings that follow it.
type HelloReply struct {
	Version   uint32
	State     uint32 // CTL_STATE_*
	HostPID   uint32 // 0: on another machine, whose processes cannot be inspected
	TargetPID uint32 // 0: not started yet, or ended
	ABI       uint32 // CTL_ABI_*
	StartNS   uint64 // CLOCK_MONOTONIC of the host at its start
	Stack     string // the stack's name
	Release   string // the kernel's release; empty before CTL_BOOT
	Arch      string // the stack host's architecture in Go's terms, which determines call numbers and layouts
}

const helloReplySize = 32

// Append appends the message in wire format to b.
func (m HelloReply) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Version)
	b = le.AppendUint32(b, m.State)
	b = le.AppendUint32(b, m.HostPID)
	b = le.AppendUint32(b, m.TargetPID)
	b = le.AppendUint32(b, m.ABI)
	b = le.AppendUint32(b, uint32(len(m.Stack)+len(m.Release)+len(m.Arch)+3))
	b = le.AppendUint64(b, m.StartNS)
	b = append(b, m.Stack...)
	b = append(b, 0)
	b = append(b, m.Release...)
	b = append(b, 0)
	b = append(b, m.Arch...)
	return append(b, 0)
}

// Unmarshal decodes the body of a CTL_HELLO reply.
func (m *HelloReply) Unmarshal(b []byte) error {
	if len(b) < helloReplySize {
		return short("hello reply", len(b), helloReplySize)
	}
	n := uint64(le.Uint32(b[20:]))
	if uint64(len(b)) != helloReplySize+n {
		return fmt.Errorf("%w: hello reply of %d bytes announces %d bytes of strings", ErrMalformed, len(b), n)
	}
	stack, rest, ok := bytes.Cut(b[helloReplySize:], []byte{0})
	release, rest, ok2 := bytes.Cut(rest, []byte{0})
	arch, tail, ok3 := bytes.Cut(rest, []byte{0})
	// Earlier versions of the stack host do not send a third string.
	if !ok || !ok2 || !ok3 && len(rest) != 0 || len(tail) != 0 {
		return fmt.Errorf("%w: hello reply does not hold three terminated strings", ErrMalformed)
	}
	*m = HelloReply{
		Version: le.Uint32(b), State: le.Uint32(b[4:]),
		HostPID: le.Uint32(b[8:]), TargetPID: le.Uint32(b[12:]),
		ABI: le.Uint32(b[16:]), StartNS: le.Uint64(b[24:]),
		Stack: string(stack), Release: string(release), Arch: string(arch),
	}
	return nil
}

// LinkAdd is struct ctl_link_add; the descriptor is sent along.
type LinkAdd struct {
	Kind  uint32  // CTL_LINK_*
	Flags uint32  // CTL_LINKF_*
	MAC   [6]byte // all zero: the stack chooses one
	MTU   uint16  // 0: the stack's default
}

// Append appends the message in wire format to b.
func (m LinkAdd) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Kind)
	b = le.AppendUint32(b, m.Flags)
	b = append(b, m.MAC[:]...)
	return le.AppendUint16(b, m.MTU)
}

// LinkReply is struct ctl_link_rep.
type LinkReply struct {
	Dev     int32 // device id, for CTL_LINK_DEL
	IfIndex int32 // in the stack; 0 before CTL_BOOT
}

// Unmarshal decodes the body of a CTL_LINK_ADD reply.
func (m *LinkReply) Unmarshal(b []byte) error {
	if err := exact("link reply", b, 8); err != nil {
		return err
	}
	*m = LinkReply{Dev: int32(le.Uint32(b)), IfIndex: int32(le.Uint32(b[4:]))}
	return nil
}

// LinkJoin is struct ctl_link_join; the bell is sent along.
type LinkJoin struct {
	Dev int32
}

// Append appends the message in wire format to b.
func (m LinkJoin) Append(b []byte) []byte { return le.AppendUint32(b, uint32(m.Dev)) }

// LinkDel is struct ctl_link_del.
type LinkDel struct {
	Dev int32
}

// Append appends the message in wire format to b.
func (m LinkDel) Append(b []byte) []byte { return le.AppendUint32(b, uint32(m.Dev)) }

// Boot is struct ctl_boot with the kernel command line that follows it.
type Boot struct {
	Mem     uint64 // bytes; 0: the library's default
	Cmdline string
}

// Append appends the message in wire format to b.
func (m Boot) Append(b []byte) []byte {
	b = le.AppendUint64(b, m.Mem)
	b = le.AppendUint32(b, uint32(len(m.Cmdline)))
	b = le.AppendUint32(b, 0)
	return append(b, m.Cmdline...)
}

// Go is struct ctl_go with the path that follows it.
type Go struct {
	Flags      uint32 // CTL_GOF_*
	SpinUS     uint32 // busy-wait before sleeping, in microseconds; 0: none
	CoalesceUS uint32 // time for which frames may gather, in microseconds
	ResolvConf string // replaces the target's /etc/resolv.conf; empty: unchanged
}

// Append appends the message in wire format to b.
func (m Go) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Flags)
	b = le.AppendUint32(b, m.SpinUS)
	b = le.AppendUint32(b, uint32(len(m.ResolvConf)))
	b = le.AppendUint32(b, m.CoalesceUS)
	return append(b, m.ResolvConf...)
}

// GoReply is the body of the reply to CTL_GO.
type GoReply struct {
	PID uint32 // the target's
}

// Unmarshal decodes the body of a CTL_GO reply.
func (m *GoReply) Unmarshal(b []byte) error {
	if err := exact("go reply", b, 4); err != nil {
		return err
	}
	m.PID = le.Uint32(b)
	return nil
}

// Cancel is struct ctl_cancel.
type Cancel struct {
	ID uint32 // id of the CTL_SYSCALL request
}

// Append appends the message in wire format to b.
func (m Cancel) Append(b []byte) []byte { return le.AppendUint32(b, m.ID) }

// Owner is struct ctl_owner: the owner of a socket of the stack.
type Owner struct {
	StackIno   uint64 // inode in the stack, as in ss and /proc/net
	CarrierIno uint64 // inode of the target's end on the host, as in /proc/PID/fd
	PID        uint32 // the process that made it
	Conn       uint32 // connection number
	StackFD    int32
	Flags      uint32
	Comm       string // name of that process at that time; at most 15 bytes
}

const (
	ownerSize = 48
	commSize  = 16 // TASK_COMM_LEN, include/linux/sched.h
)

// UnmarshalOwners decodes the body of a CTL_OWNERS reply.
func UnmarshalOwners(b []byte) ([]Owner, error) {
	if len(b)%ownerSize != 0 {
		return nil, fmt.Errorf("%w: owners of %d bytes, want a multiple of %d", ErrMalformed, len(b), ownerSize)
	}
	owners := make([]Owner, 0, len(b)/ownerSize)
	for ; len(b) > 0; b = b[ownerSize:] {
		comm, _, _ := bytes.Cut(b[32:ownerSize], []byte{0})
		owners = append(owners, Owner{
			StackIno: le.Uint64(b), CarrierIno: le.Uint64(b[8:]),
			PID: le.Uint32(b[16:]), Conn: le.Uint32(b[20:]),
			StackFD: int32(le.Uint32(b[24:])), Flags: le.Uint32(b[28:]),
			Comm: string(comm),
		})
	}
	return owners, nil
}

// Events is struct ctl_events: a subscription.
type Events struct {
	Mask uint32 // CTL_EV_*
}

// Append appends the message in wire format to b.
func (m Events) Append(b []byte) []byte { return le.AppendUint32(b, m.Mask) }

// Event is struct ctl_event with the text that follows it.
type Event struct {
	Kind   uint32 // one of CTL_EV_*
	PID    uint32
	TimeNS uint64 // CLOCK_MONOTONIC
	Arg    int64  // by kind: wait status, connection number, device id
	Text   string
}

const eventSize = 24

// Append appends the message in wire format to b.
func (m Event) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Kind)
	b = le.AppendUint32(b, m.PID)
	b = le.AppendUint64(b, m.TimeNS)
	b = le.AppendUint64(b, uint64(m.Arg))
	return append(b, m.Text...)
}

// Unmarshal decodes the body of a CTL_EVENT frame.
func (m *Event) Unmarshal(b []byte) error {
	if len(b) < eventSize {
		return short("event", len(b), eventSize)
	}
	*m = Event{
		Kind: le.Uint32(b), PID: le.Uint32(b[4:]),
		TimeNS: le.Uint64(b[8:]), Arg: int64(le.Uint64(b[16:])),
		Text: string(b[eventSize:]),
	}
	return nil
}

// Stop is struct ctl_stop.
type Stop struct {
	Signal  uint32
	GraceMS uint32 // SIGKILL after this many milliseconds
}

// Append appends the message in wire format to b.
func (m Stop) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Signal)
	return le.AppendUint32(b, m.GraceMS)
}

// Serve is struct ctl_serve.
type Serve struct {
	Flags uint32 // CTL_SERVE_*
}

// Append appends the message in wire format to b.
func (m Serve) Append(b []byte) []byte { return le.AppendUint32(b, m.Flags) }

// Exec is struct ctl_exec with the strings that follow it.
type Exec struct {
	Umask uint32
	Dir   string   // the working directory
	Args  []string // the command and its arguments
	Env   []string
}

// Append appends the message in wire format to b. It fails if a string contains a zero
// byte or if there is no command.
func (m Exec) Append(b []byte) ([]byte, error) {
	if len(m.Args) == 0 {
		return nil, fmt.Errorf("%w: no command", ErrMalformed)
	}
	var text []byte
	all := append([]string{m.Dir}, m.Args...)
	for _, s := range append(all, m.Env...) {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("%w: %q holds a zero byte", ErrMalformed, s)
		}
		text = append(append(text, s...), 0)
	}
	b = le.AppendUint32(b, uint32(len(m.Args)))
	b = le.AppendUint32(b, uint32(len(m.Env)))
	b = le.AppendUint32(b, m.Umask)
	b = le.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}

// ExecReply is struct ctl_exec_rep.
type ExecReply struct {
	WaitStatus int32  // as from waitpid(2)
	How        uint32 // CTL_EXEC_*
	Error      int32  // an error number, with CTL_EXEC_CWD and CTL_EXEC_COMMAND
}

// Unmarshal decodes the body of the reply to CTL_EXEC.
func (m *ExecReply) Unmarshal(b []byte) error {
	if err := exact("exec reply", b, 16); err != nil {
		return err
	}
	*m = ExecReply{WaitStatus: int32(le.Uint32(b)), How: le.Uint32(b[4:]), Error: int32(le.Uint32(b[8:]))}
	return nil
}

// ExecSignal is struct ctl_exec_signal.
type ExecSignal struct {
	ID     uint32 // id of the CTL_EXEC request
	Signal uint32
	Flags  uint32 // CTL_EXECF_*
}

// Append appends the message in wire format to b.
func (m ExecSignal) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.ID)
	b = le.AppendUint32(b, m.Signal)
	b = le.AppendUint32(b, m.Flags)
	return le.AppendUint32(b, 0)
}

// Ask is struct ctl_ask with the text that follows it: a question for lklrun, sent to
// lklhost (CTL_ASK) or from lklhost to lklrun (CTL_ASKED).
type Ask struct {
	Serial uint32 // 0 in CTL_ASK
	Flags  uint32 // CTL_ASKF_*
	Text   []byte
}

const askSize = 8

// Append appends the message in wire format to b.
func (m Ask) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Serial)
	b = le.AppendUint32(b, m.Flags)
	return append(b, m.Text...)
}

// Unmarshal decodes the body of a CTL_ASK request or of CTL_ASKED.
func (m *Ask) Unmarshal(b []byte) error {
	if len(b) < askSize {
		return short("question", len(b), askSize)
	}
	*m = Ask{Serial: le.Uint32(b), Flags: le.Uint32(b[4:]), Text: b[askSize:]}
	return nil
}

// Answer is struct ctl_answer with the text that follows it.
type Answer struct {
	Serial uint32
	Status int32 // 0 or a negative errno
	Text   []byte
}

// Append appends the message in wire format to b.
func (m Answer) Append(b []byte) []byte {
	b = le.AppendUint32(b, m.Serial)
	b = le.AppendUint32(b, uint32(m.Status))
	return append(b, m.Text...)
}
