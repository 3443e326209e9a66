// SPDX-License-Identifier: Apache-2.0

package ctlproto

import "fmt"

// Syscall is struct ctl_syscall with its buffers: a call to make in the stack, with the
// number of the host's architecture.
type Syscall struct {
	Nr         uint32
	TimeoutMS  uint32 // > 0: how long to wait instead of returning EAGAIN
	WaitEvents uint32 // EPOLLIN ... on the descriptor in Args[0]
	Args       [6]uint64
	Bufs       []Buf
}

// Buf is struct ctl_buf with its bytes. An entry with only CTL_BUF_USED is no buffer: it
// specifies the place where the call reports the used length of the previous buffer.
type Buf struct {
	Place  uint8 // argument 0..5, or the index of the buffer that contains the pointer or the count
	Flags  uint8 // CTL_BUF_*
	Offset uint16
	Len    uint32
	Data   []byte // Len bytes in a request if Flags has CTL_BUF_IN, else nil
}

// Append appends the message in wire format to b. It rejects the messages that the stack
// host rejects.
func (m Syscall) Append(b []byte) ([]byte, error) {
	b = le.AppendUint32(b, m.Nr)
	b = le.AppendUint32(b, uint32(len(m.Bufs)))
	b = le.AppendUint32(b, m.TimeoutMS)
	b = le.AppendUint32(b, m.WaitEvents)
	for _, a := range m.Args {
		b = le.AppendUint64(b, a)
	}
	if len(m.Bufs) > CTL_SYSCALL_BUFS {
		return nil, fmt.Errorf("%w: call with %d buffers, at most %d", ErrMalformed, len(m.Bufs), CTL_SYSCALL_BUFS)
	}
	for i, d := range m.Bufs {
		if err := d.check(i, m.Bufs[:i]); err != nil {
			return nil, err
		}
		b = append(b, d.Place, d.Flags)
		b = le.AppendUint16(b, d.Offset)
		b = le.AppendUint32(b, d.Len)
	}
	for i, d := range m.Bufs {
		if d.Flags&CTL_BUF_IN == 0 {
			continue
		}
		if uint64(len(d.Data)) != uint64(d.Len) {
			return nil, fmt.Errorf("%w: buffer %d has %d bytes, says %d", ErrMalformed, i, len(d.Data), d.Len)
		}
		b = append(b, d.Data...)
	}
	return b, nil
}

// check checks buffer i by the rules in ctl_proto.h; bufs contains the buffers before it.
func (d Buf) check(i int, bufs []Buf) error {
	if d.Flags == CTL_BUF_USED {
		return d.checkUsed(i, bufs)
	}
	if d.Flags&^(CTL_BUF_INOUT|CTL_BUF_IN_BUF) != 0 || d.Flags&CTL_BUF_INOUT == 0 {
		return fmt.Errorf("%w: buffer %d has flags %#x", ErrMalformed, i, d.Flags)
	}
	if d.Flags&CTL_BUF_IN_BUF == 0 {
		if d.Place > 5 || d.Offset != 0 {
			return fmt.Errorf("%w: buffer %d is for argument %d, offset %d", ErrMalformed, i, d.Place, d.Offset)
		}
		return nil
	}
	if int(d.Place) >= i {
		return fmt.Errorf("%w: buffer %d lies in buffer %d, which does not come before it", ErrMalformed, i, d.Place)
	}
	if d.Offset%8 != 0 || uint64(d.Offset)+8 > uint64(bufs[d.Place].Len) {
		return fmt.Errorf("%w: buffer %d's address does not fit at offset %d of buffer %d", ErrMalformed, i, d.Offset, d.Place)
	}
	return nil
}

// checkUsed checks an entry with CTL_BUF_USED.
func (d Buf) checkUsed(i int, bufs []Buf) error {
	switch {
	case int(d.Place) >= i || bufs[d.Place].Flags&CTL_BUF_OUT == 0:
		return fmt.Errorf("%w: what buffer %d counts by is not in a buffer of the reply that comes before it", ErrMalformed, i-1)
	case d.Len != 0 || d.Offset%8 != 0 || uint64(d.Offset)+4 > uint64(bufs[d.Place].Len):
		return fmt.Errorf("%w: what buffer %d counts by does not fit at offset %d of buffer %d", ErrMalformed, i-1, d.Offset, d.Place)
	case bufs[i-1].Flags&CTL_BUF_INOUT != CTL_BUF_OUT:
		return fmt.Errorf("%w: buffer %d, of which a part shall come back, is not for output alone", ErrMalformed, i-1)
	case int(d.Place)+1 < i && bufs[d.Place+1].Flags == CTL_BUF_USED, int(d.Place)+1 == i:
		return fmt.Errorf("%w: what buffer %d counts by is in a buffer of which only a part comes back", ErrMalformed, i-1)
	}
	return nil
}

// SyscallReply is struct ctl_syscall_rep with the bytes of the OUT and INOUT
// buffers that follow it.
type SyscallReply struct {
	Ret int64 // the stack's return value: >= 0 or a negative errno
	Out []byte
}

// Unmarshal decodes the body of a CTL_SYSCALL reply. Out points into b.
func (m *SyscallReply) Unmarshal(b []byte) error {
	if len(b) < 8 {
		return short("call's reply", len(b), 8)
	}
	*m = SyscallReply{Ret: int64(le.Uint64(b)), Out: b[8:]}
	return nil
}
