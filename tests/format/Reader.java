import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.zip.Adler32;
import java.util.zip.CRC32;

/**
 * A reader of eosdb files, made from docs/internals/format.md alone: of the tables as they are now, no event is folded.
 *
 *     java -cp sqlite-jdbc.jar Reader.java FILE…
 *
 * It prints the lines of reader.py.
 */
public class Reader {
    static final long EOSDB = 1701802852L;
    static final int SCHEMA = 1;
    static final long MODULUS = 70368744177643L;
    static final String ABORTED =
        "(r.is_transactional AND EXISTS (SELECT 1 FROM transaction_index a"
        + " WHERE a.partition_id = r.partition_id AND a.producer_id = r.producer_id"
        + " AND a.first_offset <= r.\"offset\" AND r.\"offset\" < a.last_offset))";
    static final String COMMITTED =
        "FROM records r JOIN partitions p ON p.partition_id = r.partition_id"
        + " WHERE r.\"offset\" >= p.log_start_offset AND r.\"offset\" < p.last_stable_offset"
        + " AND r.control IS NULL AND NOT " + ABORTED;
    static final List<String> CHECKED = List.of(
        "eosdb_journal", "partitions", "transaction_index", "eosdb_file", "eosdb_baseline", "group_sessions");
    static final String HERE = " FROM records WHERE partition_id = ? AND \"offset\" >= ? AND \"offset\" < ?";

    final Connection file;

    Reader(Connection file) {
        this.file = file;
    }

    public static void main(String[] paths) throws Exception {
        for (String path : paths) {
            try (Connection file = DriverManager.getConnection("jdbc:sqlite:file:" + path + "?mode=ro");
                    Statement statement = file.createStatement()) {
                statement.execute("PRAGMA query_only=1");
                statement.execute("PRAGMA trusted_schema=0");
                file.setAutoCommit(false);
                new Reader(file).list(path);
            }
        }
    }

    void list(String path) throws SQLException {
        long schema = schema(path);
        long lowest = number("SELECT read_version FROM eosdb_file");
        if (schema < SCHEMA || lowest > SCHEMA) {
            throw new IllegalStateException(path + " has schema " + schema + ", expected " + SCHEMA);
        }
        print("file", quoted(path), quoted(text("SELECT file_id FROM eosdb_file")), schema);
        byte[] namespace = Base64.getUrlDecoder().decode(text("SELECT file_id FROM eosdb_file"));
        each("SELECT topic, topic_id, config FROM topics ORDER BY topic",
            row -> print("topic", quoted(row.getString(1)), quoted(uuid(namespace, row.getString(2))),
                row.getString(3)));
        each("SELECT topic, partition, log_start_offset, log_end_offset, last_stable_offset"
            + " FROM partitions WHERE partition >= 0 ORDER BY topic, partition",
            row -> print("partition", quoted(row.getString(1)), row.getLong(2), row.getLong(3),
                row.getLong(4), row.getLong(5)));
        each("SELECT p.topic, p.partition, r.\"offset\", r.timestamp, r.timestamp_type, r.key, r.value,"
            + " r.headers " + COMMITTED + " AND p.partition >= 0 ORDER BY p.topic, p.partition, r.\"offset\"",
            row -> print("record", quoted(row.getString(1)), row.getLong(2), row.getLong(3),
                row.getLong(4), row.getLong(5), base64(row.getBytes(6)), base64(row.getBytes(7)),
                row.getString(8)));
        each("SELECT group_id, topic, partition, committed_offset, metadata FROM group_offsets"
            + " ORDER BY group_id, topic, partition", row -> offset(row));
        each("SELECT transactional_id, producer_id, producer_epoch, state, start_time, partitions"
            + " FROM transactional_ids WHERE state IN ('Ongoing', 'PrepareCommit', 'PrepareAbort') ORDER BY transactional_id",
            row -> print("open", quoted(row.getString(1)), row.getLong(2), row.getLong(3),
                quoted(row.getString(4)), row.getLong(5), row.getString(6)));
        List<String> copies = new ArrayList<>();
        each("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", row -> {
            if (row.getString(1).startsWith("eosdb_baseline_")) {
                copies.add(row.getString(1));
            }
        });
        List<String> checked = new ArrayList<>(CHECKED);
        checked.addAll(copies);
        for (String table : checked) {
            each("SELECT * FROM " + table, row -> check(table, row));
        }
        each("SELECT * FROM records", row -> checkRecord(row));
        invariants(copies);
    }

    // -- invariants; those of the fold are not seen here

    void invariants(List<String> copies) throws SQLException {
        for (String table : List.of("eosdb_alembic_version", "eosdb_baseline", "eosdb_file")) {
            if (number("SELECT count(*) FROM " + table) != 1) {
                print("wrong", quoted("one row"), "[" + quoted(table) + "]");
            }
        }
        long[] sum = {0};
        for (String table : copies) {
            CRC32 weight = new CRC32();
            weight.update(table.getBytes(StandardCharsets.UTF_8));
            each("SELECT checksum FROM " + table, row -> sum[0] += weight.getValue() * row.getLong(1));
        }
        if (sum[0] != number("SELECT rows_sum FROM eosdb_baseline")) {
            print("wrong", quoted("rows_sum"), "[]");
        }
        each("SELECT * FROM partitions ORDER BY topic, partition", row -> ofPartition(row));
        each("SELECT position, partition_id, \"offset\" FROM records r WHERE NOT EXISTS"
            + " (SELECT 1 FROM eosdb_journal j WHERE j.position = r.position) ORDER BY 1, 2, 3",
            row -> print("wrong", quoted("events"), List.of(row.getLong(2), row.getLong(3), row.getLong(1))));
    }

    void ofPartition(ResultSet row) throws SQLException {
        long id = row.getLong("partition_id");
        long start = row.getLong("log_start_offset");
        long end = row.getLong("log_end_offset");
        long clean = row.getLong("clean_offset");
        String where = "[" + quoted(row.getString("topic")) + ", " + row.getLong("partition") + "]";
        if (number("SELECT count(*)" + HERE, id, Math.max(start, clean), end)
                != Math.max(0, end - Math.max(start, clean))) {
            print("wrong", quoted("rows"), where);
        }
        if (number("SELECT ifnull(sum(ifnull(length(key), 0) + ifnull(length(value), 0)"
                + " + ifnull(length(CAST(headers AS BLOB)), 0)), 0)" + HERE, id, start, Long.MAX_VALUE)
                != row.getLong("size_bytes")) {
            print("wrong", quoted("size_bytes"), where);
        }
        long[] sum = {0};
        each("SELECT \"offset\", checksum FROM records WHERE partition_id = " + id + " AND \"offset\" >= "
            + start + " AND \"offset\" < " + clean, found -> sum[0] += mixed(found.getLong(1), found.getLong(2)));
        if (row.getLong("cleaned_sum") != sum[0]) {
            print("wrong", quoted("cleaned_sum"), where);
        }
        long[] before = {Long.MIN_VALUE};
        each("SELECT last_offset, previous_offset FROM transaction_index WHERE partition_id = " + id
            + " ORDER BY last_offset", found -> {
                link(before[0], found.getLong(2), start, where);
                before[0] = found.getLong(1);
            });
        link(before[0], row.getLong("last_aborted_offset"), start, where);
    }

    static void link(long before, long previous, long start, String where) {
        if (before == Long.MIN_VALUE ? previous >= start : previous != before) {
            print("wrong", quoted("chain"), where);
        }
    }

    /** SplitMix64's finalizer. */
    static long mixed(long offset, long checksum) {
        long x = checksum + offset * 0x9E3779B97F4A7C15L;
        x = (x ^ x >>> 30) * 0xBF58476D1CE4E5B9L;
        x = (x ^ x >>> 27) * 0x94D049BB133111EBL;
        return x ^ x >>> 31;
    }

    long schema(String path) throws SQLException {
        if (number("PRAGMA application_id") == EOSDB) {
            return number("PRAGMA user_version");
        }
        if (number("SELECT count(*) FROM sqlite_master"
                + " WHERE name IN ('eosdb_file', 'eosdb_alembic_version')") != 2) {
            throw new IllegalStateException(path + " is no eosdb file");
        }
        return Long.parseLong(text("SELECT version_num FROM eosdb_alembic_version"));
    }

    void offset(ResultSet row) throws SQLException {
        String topic = row.getString(2);
        long partition = row.getLong(3);
        long from = row.getLong(4);
        Object readable = null;
        Object heldBack = null;
        String here = " AND p.topic = ? AND p.partition = ?";
        if (number("SELECT count(*) FROM partitions p WHERE 1" + here, topic, partition) == 1) {
            readable = number("SELECT count(*) " + COMMITTED + here + " AND r.\"offset\" >= ?",
                topic, partition, from);
            heldBack = number("SELECT count(*) FROM records r"
                + " JOIN partitions p ON p.partition_id = r.partition_id WHERE r.control IS NULL AND NOT "
                + ABORTED + here + " AND r.\"offset\" >= max(p.last_stable_offset, ?)",
                topic, partition, from);
        }
        print("offset", quoted(row.getString(1)), quoted(topic), partition, from,
            quoted(row.getString(5)), readable, heldBack);
    }

    /** RFC 9562, version 5. */
    static String uuid(byte[] namespace, String name) throws SQLException {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-1");
            digest.update(namespace);
            ByteBuffer hash = ByteBuffer.wrap(digest.digest(name.getBytes(StandardCharsets.UTF_8)));
            long high = hash.getLong() & ~0xf000L | 0x5000L;
            long low = hash.getLong() & ~(3L << 62) | 1L << 63;
            return new UUID(high, low).toString();
        } catch (NoSuchAlgorithmException missing) {
            throw new SQLException(missing);
        }
    }

    // -- checksums

    static void check(String table, ResultSet row) throws SQLException {
        StringJoiner joined = new StringJoiner("\u001f");
        StringJoiner shown = new StringJoiner(",", "[", "]");
        for (int i = 1; i <= row.getMetaData().getColumnCount(); i++) {
            if (!row.getMetaData().getColumnName(i).equals("checksum")) {
                String cell = row.getString(i) == null ? "None" : row.getString(i);
                joined.add(cell);
                shown.add(quoted(cell));
            }
        }
        CRC32 sum = new CRC32();
        sum.update(joined.toString().getBytes(StandardCharsets.UTF_8));
        if (row.getLong("checksum") != sum.getValue()) {
            print("altered", quoted(table), shown);
        }
    }

    static void checkRecord(ResultSet row) throws SQLException {
        String control = row.getString("control");
        boolean isData = control == null;
        long content = 0x155555555555L;
        if (isData) {
            String headers = row.getString("headers");
            content = adler(row.getBytes("value")) + 3 * adler(row.getBytes("key"))
                + 5 * adler(headers == null ? null : headers.getBytes(StandardCharsets.UTF_8));
        }
        long given = row.getLong("partition_id") * 1000003 + row.getLong("timestamp_type")
            + row.getLong("producer_id") % MODULUS + row.getLong("is_transactional") + (isData ? 1 : 0)
            + row.getLong("timestamp") % MODULUS + row.getLong("offset");
        long others = row.getLong("producer_epoch") + row.getLong("sequence_round")
            + row.getLong("position") + row.getLong("sequence")
            + (isData ? 0 : control.equals("COMMIT") ? 1 : 2);
        if (row.getLong("checksum") != content + given + (others % 32749 << 48)) {
            String place = quoted(row.getString("partition_id")) + "," + quoted(row.getString("offset"));
            print("altered", quoted("records"), "[" + place + "]");
        }
    }

    static long adler(byte[] part) {
        if (part == null) {
            return 0;
        }
        Adler32 sum = new Adler32();
        sum.update(part);
        return sum.getValue();
    }

    // -- rows and lines

    interface Each {
        void take(ResultSet row) throws SQLException;
    }

    void each(String sql, Each each) throws SQLException {
        try (Statement statement = file.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            while (rows.next()) {
                each.take(rows);
            }
        }
    }

    long number(String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = file.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getLong(1);
            }
        }
    }

    String text(String sql) throws SQLException {
        List<String> found = new ArrayList<>();
        each(sql, row -> found.add(row.getString(1)));
        return found.get(0);
    }

    static void print(String kind, Object... cells) {
        StringJoiner line = new StringJoiner(", ", "[", "]").add(quoted(kind));
        for (Object cell : cells) {
            line.add(String.valueOf(cell));
        }
        System.out.writeBytes((line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    static String base64(byte[] part) {
        return part == null ? "null" : quoted(Base64.getEncoder().encodeToString(part));
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\' || c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
