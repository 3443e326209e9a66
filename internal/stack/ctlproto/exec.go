// SPDX-License-Identifier: Apache-2.0

package ctlproto

import (
	"fmt"
	"strings"
)

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
