// One end of the message study in Java: sends or receives messages of one size over one connection.
//
// Run by the JDK (17 or later) without a build: java Messages.java receiver --port 0
// tcptoll starts one JVM on each of the two hosts. By hand, the same in two terminals:
//
//   java Messages.java receiver --port 5001 --encoding xml --message 1024
//   java Messages.java sender --host 127.0.0.1 --port 5001 --encoding xml --message 1024
//
// Each end prints a line of JSON when it is ready, and another with its result when it ends.
//
// What a message is. The record of a trade: sequence number (8 bytes), time (8), price (8),
// quantity (4), side (4) and a text, which fills the rest. --message is the size of this content.
//
//   encoding       written as                                                       bytes sent
//   raw            the bytes of an array; the first up to 8 are the sequence number  size
//   fields         DataOutputStream; the length of the text before the text          size + 4
//   serialization  ObjectOutputStream, reset before each message, so that neither    measured
//                  end keeps every message; the class is described each time
//   xml            XMLStreamWriter, a document each; its length in 4 bytes before    measured
//
// The sender encodes into one array that it uses again, and hands each message to the socket with
// one OutputStream.write: one system call, or one for each 128 KiB, which is what the JDK writes with
// one. Nothing is gathered in a BufferedOutputStream: the study asks what a message costs. The
// receiver reads through a buffer of 64 KiB, decodes every message, and checks its sequence number,
// its price and the length of its text. A message that is not as expected ends the program with an error.
//
// The window. It begins --warmup after the first byte sent (received) and lasts --duration, from one
// read of the clock to another. The clock is read after every 16 KiB of messages, and after each
// message of 16 KiB and more. The sender goes on for --tail, so that the receiver's window is full.
// CPU time is that of the whole process: compiler and garbage collector are part of it. The JVM
// reports it in steps of 10 ms.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputFilter;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.io.StreamCorruptedException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLOutputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamException;
import javax.xml.stream.XMLStreamReader;
import javax.xml.stream.XMLStreamWriter;

/** Both ends of the message study. */
public final class Messages {
    /** Bytes of the content before the text. */
    private static final int HEAD = 32;
    /** Largest content, bytes. */
    private static final int MESSAGE_MAX = 16 << 20;
    /** The receiver's buffer, bytes. */
    private static final int BUFFER = 64 << 10;
    /** The clock is read after this much content. */
    private static final int CLOCK_EVERY = 16 << 10;
    /** Bytes that the JDK hands to one write(2), at most (NioSocketImpl of JDK 13 and later). */
    private static final int CALL_MAX = 128 << 10;
    /** Bytes of XML around the text of a document, at most. */
    private static final int XML_AROUND = 1024;
    /** Longest phase that is accepted, ms. */
    private static final long PHASE_MS_MAX = 3_600_000;

    private static final double PRICE = 42.125;
    private static final int QUANTITY = 100;
    private static final int SIDE = 1;

    private static final Set<String> NAMES = Set.of("host", "port", "encoding", "message", "nagle",
        "send-buffer", "receive-buffer", "timeout", "warmup", "duration", "tail", "work");

    private Messages() {}

    public static void main(String[] words) {
        try {
            if (words.length == 0) {
                throw new IllegalArgumentException("say sender or receiver; the options are " + NAMES);
            }
            Options options = new Options(words);
            switch (words[0]) {
                case "sender" -> send(options);
                case "receiver" -> receive(options);
                default -> throw new IllegalArgumentException(words[0] + ": write sender or receiver");
            }
        } catch (IllegalArgumentException error) {
            System.err.println("Messages.java: " + error.getMessage());
            System.exit(2);
        } catch (IOException | XMLStreamException | ClassNotFoundException error) {
            System.err.println("Messages.java: " + error);
            System.exit(1);
        }
    }

    /** The command line, checked. */
    private static final class Options {
        private final Map<String, String> typed = new HashMap<>();
        final InetAddress host;
        final int port;
        final String encoding;
        final int message;
        final boolean nagle;
        final int sendBuffer;
        final int receiveBuffer;
        final int timeoutMs;
        final long warmupNs;
        final long durationNs;
        final long tailNs;
        final long workNs;

        Options(String[] words) throws IOException {
            for (int at = 1; at < words.length; at += 2) {
                String name = words[at].startsWith("--") ? words[at].substring(2) : "";
                if (!NAMES.contains(name) || at + 1 == words.length) {
                    throw new IllegalArgumentException(words[at] + ": write --NAME VALUE of " + NAMES);
                }
                typed.put(name, words[at + 1]);
            }
            host = InetAddress.getByName(typed.getOrDefault("host", "0.0.0.0"));
            port = (int) number("port", "0", 0, 65_535);
            encoding = typed.getOrDefault("encoding", "raw");
            int least = switch (encoding) {
                case "raw" -> 1;
                case "fields", "serialization", "xml" -> HEAD;
                default -> throw new IllegalArgumentException(
                    "--encoding " + encoding + ": write raw, fields, serialization or xml");
            };
            message = (int) number("message", "1024", least, MESSAGE_MAX);
            nagle = switch (typed.getOrDefault("nagle", "on")) {
                case "on" -> true;
                case "off" -> false;
                default -> throw new IllegalArgumentException("--nagle: write on or off");
            };
            sendBuffer = (int) number("send-buffer", "auto", 1, 1 << 30);
            receiveBuffer = (int) number("receive-buffer", "auto", 1, 1 << 30);
            // Of connecting, and of waiting for the connection.
            timeoutMs = (int) number("timeout", "20000", 1, PHASE_MS_MAX);
            warmupNs = 1_000_000 * number("warmup", "1500", 0, PHASE_MS_MAX);
            durationNs = 1_000_000 * number("duration", "1000", 1, PHASE_MS_MAX);
            tailNs = 1_000_000 * number("tail", "200", 0, PHASE_MS_MAX);
            workNs = number("work", "0", 0, 1_000_000_000);
        }

        /** A number; 0 for auto. */
        private long number(String name, String otherwise, long least, long most) {
            String text = typed.getOrDefault(name, otherwise);
            if (text.equals("auto") && otherwise.equals("auto")) {
                return 0;
            }
            try {
                long value = Long.parseLong(text);
                if (value >= least && value <= most) {
                    return value;
                }
            } catch (NumberFormatException error) {
                // Refused below.
            }
            throw new IllegalArgumentException(
                "--" + name + " " + text + ": write a number from " + least + " to " + most);
        }

        /** Messages between two reads of the clock. */
        int stride() {
            return Math.max(1, CLOCK_EVERY / message);
        }

        void apply(Socket socket) throws IOException {
            socket.setTcpNoDelay(!nagle);
            if (sendBuffer > 0) {
                socket.setSendBufferSize(sendBuffer);
            }
        }
    }

    // ---------------------------------------------------------------- the sender

    private static void send(Options options) throws IOException, XMLStreamException {
        Encoder encoder = switch (options.encoding) {
            case "raw" -> new RawEncoder(options.message);
            case "fields" -> new FieldsEncoder(options.message);
            case "serialization" -> new ObjectEncoder(options.message);
            default -> new XmlEncoder(options.message);
        };
        try (Socket socket = new Socket()) {
            options.apply(socket);
            if (options.receiveBuffer > 0) {
                socket.setReceiveBufferSize(options.receiveBuffer);
            }
            socket.connect(new InetSocketAddress(options.host, options.port), options.timeoutMs);
            System.out.println("{\"connected\":true}");
            OutputStream out = socket.getOutputStream();
            Window window = new Window(options);
            long messages = 0;
            long bytes = 0;
            long calls = 0;
            int stride = options.stride();
            window.first(socket);
            long end = window.openedAt + options.warmupNs + options.durationNs + options.tailNs;
            do {
                for (int left = stride; left > 0; left--) {
                    work(options.workNs);
                    Bytes encoded = encoder.encode(messages);
                    out.write(encoded.array(), 0, encoded.size());
                    messages++;
                    bytes += encoded.size();
                    calls += (encoded.size() + CALL_MAX - 1) / CALL_MAX;
                }
            } while (window.look(messages, bytes, calls) < end);
            socket.shutdownOutput();
            // The receiver closes once it has read everything.
            if (socket.getInputStream().read() >= 0) {
                throw new StreamCorruptedException("the receiver sent data");
            }
            window.print("sender", messages, bytes, calls);
        }
    }

    /** Uses the CPU for a time. */
    private static void work(long ns) {
        if (ns > 0) {
            long end = System.nanoTime() + ns;
            while (System.nanoTime() - end < 0) {
                Thread.onSpinWait();
            }
        }
    }

    /** An array that grows, is written to, and is used again. */
    private static final class Bytes extends ByteArrayOutputStream {
        Bytes(int size) {
            super(size);
        }

        byte[] array() {
            return buf;
        }

        /** Writes a number over four bytes. */
        void put(int at, int value) {
            for (int byteAt = 0; byteAt < 4; byteAt++) {
                buf[at + byteAt] = (byte) (value >>> (24 - 8 * byteAt));
            }
        }
    }

    /** Makes bytes of a message. */
    private interface Encoder {
        Bytes encode(long sequence) throws IOException, XMLStreamException;
    }

    /** The text of a message: letters, which no encoding has to escape. */
    private static byte[] text(int message) {
        byte[] text = new byte[message - HEAD];
        Arrays.fill(text, (byte) 'x');
        return text;
    }

    private static final class RawEncoder implements Encoder {
        private final Bytes bytes;

        RawEncoder(int message) throws IOException {
            bytes = new Bytes(message);
            byte[] content = new byte[message];
            Arrays.fill(content, (byte) 'x');
            bytes.write(content);
        }

        @Override
        public Bytes encode(long sequence) {
            byte[] array = bytes.array();
            for (int at = Math.min(8, bytes.size()) - 1; at >= 0; at--) {
                array[at] = (byte) sequence;
                sequence >>>= 8;
            }
            return bytes;
        }
    }

    private static final class FieldsEncoder implements Encoder {
        private final Bytes bytes;
        private final DataOutputStream out;
        private final byte[] text;

        FieldsEncoder(int message) {
            bytes = new Bytes(message + 4);
            out = new DataOutputStream(bytes);
            text = text(message);
        }

        @Override
        public Bytes encode(long sequence) throws IOException {
            bytes.reset();
            out.writeLong(sequence);
            out.writeLong(sequence * 1_000);
            out.writeDouble(PRICE);
            out.writeInt(QUANTITY);
            out.writeInt(SIDE);
            out.writeInt(text.length);
            out.write(text);
            return bytes;
        }
    }

    /** A message as an object. */
    private static final class Trade implements Serializable {
        private static final long serialVersionUID = 1;
        final long sequence;
        final long time;
        final double price;
        final int quantity;
        final int side;
        final byte[] text;

        Trade(long sequence, byte[] text) {
            this.sequence = sequence;
            this.time = sequence * 1_000;
            this.price = PRICE;
            this.quantity = QUANTITY;
            this.side = SIDE;
            this.text = text;
        }
    }

    private static final class ObjectEncoder implements Encoder {
        private final Bytes bytes;
        private final ObjectOutputStream out;
        private final byte[] text;
        private boolean begun;

        ObjectEncoder(int message) throws IOException {
            bytes = new Bytes(message + 512);
            // The header of the stream goes with the first message.
            out = new ObjectOutputStream(bytes);
            out.flush();
            text = text(message);
        }

        @Override
        public Bytes encode(long sequence) throws IOException {
            if (begun) {
                bytes.reset();
            }
            begun = true;
            out.reset();
            out.writeObject(new Trade(sequence, text));
            out.flush();
            return bytes;
        }
    }

    private static final class XmlEncoder implements Encoder {
        private final XMLOutputFactory factory = XMLOutputFactory.newInstance();
        private final Bytes bytes;
        private final String text;

        XmlEncoder(int message) {
            bytes = new Bytes(message + XML_AROUND);
            text = "x".repeat(message - HEAD);
        }

        @Override
        public Bytes encode(long sequence) throws IOException, XMLStreamException {
            bytes.reset();
            // Room for the length.
            bytes.write(0);
            bytes.write(0);
            bytes.write(0);
            bytes.write(0);
            XMLStreamWriter out = factory.createXMLStreamWriter(bytes, "UTF-8");
            out.writeStartDocument("UTF-8", "1.0");
            out.writeStartElement("trade");
            element(out, "sequence", Long.toString(sequence));
            element(out, "time", Long.toString(sequence * 1_000));
            element(out, "price", Double.toString(PRICE));
            element(out, "quantity", Integer.toString(QUANTITY));
            element(out, "side", Integer.toString(SIDE));
            element(out, "text", text);
            out.writeEndElement();
            out.writeEndDocument();
            out.close();
            bytes.put(0, bytes.size() - 4);
            return bytes;
        }

        private static void element(XMLStreamWriter out, String name, String value)
                throws XMLStreamException {
            out.writeStartElement(name);
            out.writeCharacters(value);
            out.writeEndElement();
        }
    }

    // ---------------------------------------------------------------- the receiver

    private static void receive(Options options)
            throws IOException, XMLStreamException, ClassNotFoundException {
        try (ServerSocket listener = new ServerSocket()) {
            // Accepted sockets have it from the listener: the window is announced in the handshake.
            if (options.receiveBuffer > 0) {
                listener.setReceiveBufferSize(options.receiveBuffer);
            }
            listener.bind(new InetSocketAddress(options.host, options.port), 1);
            listener.setSoTimeout(options.timeoutMs);
            System.out.println("{\"port\":" + listener.getLocalPort() + "}");
            try (Socket socket = listener.accept()) {
                options.apply(socket);
                Source source = new Source(socket.getInputStream());
                Window window = new Window(options);
                // Waits for the first byte.
                boolean empty = source.ended();
                window.first(socket);
                Decoder decoder = decoder(options, source);
                long messages = 0;
                int untilLook = options.stride();
                while (!empty && !source.ended()) {
                    decoder.decode(messages);
                    messages++;
                    work(options.workNs);
                    if (--untilLook == 0) {
                        untilLook = options.stride();
                        window.look(messages, source.bytes, source.calls);
                    }
                }
                window.look(messages, source.bytes, source.calls);
                window.print("receiver", messages, source.bytes, source.calls);
            }
        }
    }

    private static Decoder decoder(Options options, Source source) throws IOException {
        int message = options.message;
        return switch (options.encoding) {
            case "raw" -> new RawDecoder(message, source);
            case "fields" -> new FieldsDecoder(message, source);
            case "serialization" -> new ObjectDecoder(message, source);
            default -> new XmlDecoder(message, source);
        };
    }

    /** Reads through a buffer, and counts what the socket gave. */
    private static final class Source extends InputStream {
        private final InputStream in;
        private final byte[] buffer = new byte[BUFFER];
        private int at;
        private int end;
        long bytes;
        long calls;

        Source(InputStream in) {
            this.in = in;
        }

        /** Whether the peer has closed and everything was read. */
        boolean ended() throws IOException {
            return at == end && !fill();
        }

        private boolean fill() throws IOException {
            int read = in.read(buffer, 0, buffer.length);
            at = 0;
            end = Math.max(read, 0);
            bytes += end;
            calls++;
            return read > 0;
        }

        @Override
        public int read() throws IOException {
            return ended() ? -1 : buffer[at++] & 0xff;
        }

        @Override
        public int read(byte[] to, int from, int length) throws IOException {
            if (length == 0) {
                return 0;
            }
            if (ended()) {
                return -1;
            }
            int part = Math.min(length, end - at);
            System.arraycopy(buffer, at, to, from, part);
            at += part;
            return part;
        }
    }

    /** Reads one message and checks it. */
    private interface Decoder {
        void decode(long sequence) throws IOException, XMLStreamException, ClassNotFoundException;
    }

    private static void check(String what, long got, long expected) throws IOException {
        if (got != expected) {
            throw new StreamCorruptedException(what + " " + got + " came instead of " + expected);
        }
    }

    private static final class RawDecoder implements Decoder {
        private final DataInputStream in;
        private final byte[] bytes;
        private final int numbered;

        RawDecoder(int message, Source source) {
            in = new DataInputStream(source);
            bytes = new byte[message];
            numbered = Math.min(8, message);
        }

        @Override
        public void decode(long sequence) throws IOException {
            in.readFully(bytes);
            long got = 0;
            for (int at = 0; at < numbered; at++) {
                got = got << 8 | bytes[at] & 0xff;
            }
            long mask = numbered == 8 ? -1L : (1L << (8 * numbered)) - 1;
            check("message", got, sequence & mask);
        }
    }

    private static final class FieldsDecoder implements Decoder {
        private final DataInputStream in;
        private final byte[] text;

        FieldsDecoder(int message, Source source) {
            in = new DataInputStream(source);
            text = new byte[message - HEAD];
        }

        @Override
        public void decode(long sequence) throws IOException {
            check("message", in.readLong(), sequence);
            check("time", in.readLong(), sequence * 1_000);
            check("price", Double.doubleToRawLongBits(in.readDouble()), Double.doubleToRawLongBits(PRICE));
            check("quantity", in.readInt(), QUANTITY);
            check("side", in.readInt(), SIDE);
            check("text length", in.readInt(), text.length);
            in.readFully(text);
        }
    }

    private static final class ObjectDecoder implements Decoder {
        private final ObjectInputStream in;
        private final int length;

        ObjectDecoder(int message, Source source) throws IOException {
            length = message - HEAD;
            in = new ObjectInputStream(source);
            in.setObjectInputFilter(info -> {
                Class<?> type = info.serialClass();
                boolean fits = info.arrayLength() <= length && info.depth() <= 2;
                boolean known = type == null || type == Trade.class || type == byte[].class;
                return fits && known ? ObjectInputFilter.Status.ALLOWED : ObjectInputFilter.Status.REJECTED;
            });
        }

        @Override
        public void decode(long sequence) throws IOException, ClassNotFoundException {
            Trade trade = (Trade) in.readObject();
            check("message", trade.sequence, sequence);
            check("time", trade.time, sequence * 1_000);
            check("price", Double.doubleToRawLongBits(trade.price), Double.doubleToRawLongBits(PRICE));
            check("quantity", trade.quantity, QUANTITY);
            check("side", trade.side, SIDE);
            check("text length", trade.text.length, length);
        }
    }

    private static final class XmlDecoder implements Decoder {
        private final XMLInputFactory factory = XMLInputFactory.newInstance();
        private final DataInputStream in;
        private final byte[] document;
        private final int length;

        XmlDecoder(int message, Source source) {
            in = new DataInputStream(source);
            document = new byte[message + XML_AROUND];
            length = message - HEAD;
            // A peer must not make the parser read files or expand entities.
            factory.setProperty(XMLInputFactory.SUPPORT_DTD, false);
            factory.setProperty(XMLInputFactory.IS_SUPPORTING_EXTERNAL_ENTITIES, false);
        }

        @Override
        public void decode(long sequence) throws IOException, XMLStreamException {
            int size = in.readInt();
            if (size < 0 || size > document.length) {
                throw new StreamCorruptedException("a document of " + size + " bytes");
            }
            in.readFully(document, 0, size);
            XMLStreamReader reader =
                factory.createXMLStreamReader(new ByteArrayInputStream(document, 0, size), "UTF-8");
            int fields = 0;
            while (reader.hasNext()) {
                if (reader.next() != XMLStreamConstants.START_ELEMENT) {
                    continue;
                }
                String name = reader.getLocalName();
                if (name.equals("trade")) {
                    continue;
                }
                String value = reader.getElementText();
                fields++;
                try {
                    switch (name) {
                        case "sequence" -> check("message", Long.parseLong(value), sequence);
                        case "time" -> check("time", Long.parseLong(value), sequence * 1_000);
                        case "price" -> check("price",
                            Double.doubleToRawLongBits(Double.parseDouble(value)),
                            Double.doubleToRawLongBits(PRICE));
                        case "quantity" -> check("quantity", Integer.parseInt(value), QUANTITY);
                        case "side" -> check("side", Integer.parseInt(value), SIDE);
                        case "text" -> check("text length", value.length(), length);
                        default -> throw new StreamCorruptedException("an element " + name);
                    }
                } catch (NumberFormatException error) {
                    throw new StreamCorruptedException(name + ": no number");
                }
            }
            reader.close();
            check("number of fields", fields, 6);
        }
    }

    // ---------------------------------------------------------------- the window

    /** What was done in the measured window, and the CPU time of it. */
    private static final class Window {
        private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        private final com.sun.management.OperatingSystemMXBean process =
            ManagementFactory.getPlatformMXBean(com.sun.management.OperatingSystemMXBean.class);
        private final Options options;
        /** When the first byte was sent or received. */
        long openedAt;
        private final Edge begin = new Edge();
        private final Edge end = new Edge();
        private long last;
        private int sendBuffer;
        private int receiveBuffer;

        /** Counts at one moment. */
        private static final class Edge {
            boolean taken;
            long at;
            long messages;
            long bytes;
            long calls;
            long processCpu;
            long threadCpu;
        }

        Window(Options options) {
            this.options = options;
            // Both beans take their time at first use.
            process.getProcessCpuTime();
            threads.getCurrentThreadCpuTime();
        }

        /** The first byte is being sent, or has come. */
        void first(Socket socket) throws IOException {
            // Now, because the kernel may change those that nobody asked for. On Linux the JDK halves
            // what getsockopt(2) reports.
            sendBuffer = 2 * socket.getSendBufferSize();
            receiveBuffer = 2 * socket.getReceiveBufferSize();
            openedAt = System.nanoTime();
        }

        /** Takes the counts if the window begins or ends; gives the time. */
        long look(long messages, long bytes, long calls) {
            long now = System.nanoTime();
            last = now;
            if (!end.taken && now - openedAt >= options.warmupNs) {
                if (!begin.taken) {
                    take(begin, now, messages, bytes, calls);
                } else if (now - openedAt >= options.warmupNs + options.durationNs
                        // One that began late is not left with too little.
                        && now - begin.at >= options.durationNs / 2) {
                    take(end, now, messages, bytes, calls);
                }
            }
            return now;
        }

        private void take(Edge edge, long now, long messages, long bytes, long calls) {
            edge.taken = true;
            edge.at = now;
            edge.messages = messages;
            edge.bytes = bytes;
            edge.calls = calls;
            edge.processCpu = process.getProcessCpuTime();
            edge.threadCpu = threads.getCurrentThreadCpuTime();
        }

        /** Prints the result. The window is absent if the data ended before it did. */
        void print(String role, long messages, long bytes, long calls) {
            StringBuilder line = new StringBuilder("{\"role\":\"").append(role).append('"');
            number(line, "messages", messages);
            number(line, "content_bytes", messages * options.message);
            number(line, "bytes", bytes);
            number(line, "calls", calls);
            if (end.taken) {
                number(line, "window_ns", end.at - begin.at);
                number(line, "window_messages", end.messages - begin.messages);
                number(line, "window_bytes", end.bytes - begin.bytes);
                number(line, "window_calls", end.calls - begin.calls);
                number(line, "window_cpu_ns", end.processCpu - begin.processCpu);
                number(line, "window_thread_cpu_ns", end.threadCpu - begin.threadCpu);
            }
            number(line, "elapsed_ns", last - openedAt);
            number(line, "send_buffer", sendBuffer);
            number(line, "receive_buffer", receiveBuffer);
            line.append(",\"java\":\"").append(Runtime.version()).append('"');
            // Last, so that as little as possible is missing.
            number(line, "cpu_ns", process.getProcessCpuTime());
            System.out.println(line.append('}'));
        }

        private static void number(StringBuilder line, String name, long value) {
            line.append(",\"").append(name).append("\":").append(value);
        }
    }
}
