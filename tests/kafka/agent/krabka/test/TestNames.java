package krabka.test;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Writes into the trace which test begins; JUnit finds it by itself. */
public final class TestNames implements TestExecutionListener {
    @Override
    public void executionStarted(TestIdentifier test) {
        if (test.isTest()) {
            String method = test.getSource().map(source -> source instanceof MethodSource at ? at.getMethodName() : "").orElse("");
            // What follows a comma in the name is about the cluster's listeners.
            Trace.write(Trace.line().put("test", method).put("name", test.getDisplayName().split(",", 2)[0]));
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Trace.flush();
    }
}
